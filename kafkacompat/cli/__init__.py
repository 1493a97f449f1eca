"""The subcommands of `kafkacompat`: each module has add_arguments(parser) and run(arguments) -> exit status."""
