"""Great Expectations suites at each stage boundary; a failure stops the stage and names the rows."""
