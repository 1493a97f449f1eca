"""Record batches: headers, records, compression, checks, control records. Pure; logs and brokers are unknown here."""
