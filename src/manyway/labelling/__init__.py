"""From labelled examples and a pile of items to a table of labels."""
