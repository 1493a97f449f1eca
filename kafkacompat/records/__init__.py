"""Record batches: headers, records, compression, checks, control records. Pure; knows no log and no broker."""
