"""The rooms behind `audit`: one file of checks for loading, time, generation and inputs each.

A check takes the tables and yields findings; it reads no file, changes nothing and knows no Trace.
"""
