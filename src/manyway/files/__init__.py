"""Files that people bring: tables, arrays, texts, scores; and careful writing."""
