"""One task that is too large to hold: its queries are read in blocks, on one machine or on a Dask cluster."""
