"""generate(): its steps, choices, cache, and the settings in force."""
