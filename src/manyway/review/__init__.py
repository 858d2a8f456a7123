"""Review labels on a local web page: every correction is saved and labels the other items again."""
