"""A cluster of real processes under faults, and an oracle over everything that clients and workers saw."""
