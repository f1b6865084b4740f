"""Every caller dialect × every worker dialect × every outcome."""
