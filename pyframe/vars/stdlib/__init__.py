"""Python's builtin functions and functions of the standard library: what a traced call of each does (registered with
`registry.register`), and Vars for their objects, such as locks, random generators and warnings filters."""
