"""All that matplotlib draws: into axes of a user, into files, and as SVG for the report. It is imported on use."""
