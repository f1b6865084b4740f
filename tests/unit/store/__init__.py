"""The diary, without a broker around it."""
