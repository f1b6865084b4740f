"""Tasks: functions that are called, or enqueued, through the broker with their own signature."""
