"""What every way to convert costs, in time and in memory: how `tensorferry bench` measures.

`methods` has what there is without us, `run` measures it against ours and gives one result, which
`results` writes and reads, and `compare` holds two of them against each other.
"""
