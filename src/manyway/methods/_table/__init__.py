"""The table of methods, and what every entry of it shares: checks, parameters, preparation."""
