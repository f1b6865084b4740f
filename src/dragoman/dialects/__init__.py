"""One package a people: its words, how they are written, our side of the conversation, and the other side."""
