"""The subcommands of `kafkacompat`. Each module has add_arguments(parser) and run(arguments), which returns the exit status."""
