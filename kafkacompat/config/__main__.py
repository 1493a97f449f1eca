"""Print the settings accepted without effect as a Markdown table: python -m kafkacompat.config"""

from kafkacompat.config.effects import without_effect_table

if __name__ == "__main__":
    print("| kind | setting | default |\n| --- | --- | --- |")
    for kind, name, default in without_effect_table():
        print(f"| {kind} | `{name}` | `{default}` |" if default else f"| {kind} | `{name}` | |")
