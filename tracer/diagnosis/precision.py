"""Rules on dtypes: doubled against the file, cast to infinities or zeros."""
