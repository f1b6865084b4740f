"""The store: background jobs and schedules, which survive a crash."""
