"""Operations: named requests about jobs, services, workers and schedules, the same over every protocol."""
