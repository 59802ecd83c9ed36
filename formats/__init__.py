"""Write test sets as files that other libraries load, and read data sets from such files. No database, no pages."""
