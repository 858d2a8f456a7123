"""Own texts: which topics occur in today's tickets?

A table of example texts with labels and a table of new texts: `manyway label examples.csv tickets.csv` does the rest.
The default encoder comes with the extra `texts`; nothing is downloaded when it runs.
"""

# %%
# ## Two tables
#
# Three example sentences for each of 16 topics of a help desk. The new tickets are about four of them.
import subprocess

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

examples = {
    "password": ["I forgot my password.", "My account is locked.", "How do I reset my login?"],
    "printer": ["The printer on the second floor is jammed.", "My prints come out blank.", "We need new toner."],
    "remote access": ["I cannot connect to the VPN.", "Remote login fails from home.", "The tunnel drops every hour."],
    "email": ["My mailbox is full.", "Mails do not arrive.", "I want to forward my mail while I am away."],
    "hardware": ["My laptop does not start.", "The screen flickers.", "The keyboard has a broken key."],
    "software": ["Please install the new editor.", "The program crashes at start.", "I need a licence for it."],
    "invoice": ["This invoice has the wrong amount.", "We were charged twice.", "Please send a copy of the bill."],
    "travel": ["I want to book a train to Berlin.", "Which hotel may I take?", "My flight was cancelled."],
    "holiday": ["How many days of leave do I have?", "I want to take next Friday off.", "Approve my vacation."],
    "payroll": ["My salary was not paid.", "There is a mistake on my payslip.", "When is the bonus paid?"],
    "parking": ["I need a parking space.", "The barrier of the garage does not open.", "Where can visitors park?"],
    "rooms": ["Please book the large meeting room.", "Our room is double-booked.", "Is the hall free on Monday?"],
    "heating": ["My office is too cold.", "The radiator is leaking.", "The air conditioning is too loud."],
    "canteen": ["Is there a vegan dish today?", "The coffee machine is out of order.", "Lunch was too salty."],
    "training": ["Which courses can I take?", "I want to learn Spanish.", "Enrol me in the safety course."],
    "visitors": ["A guest comes tomorrow.", "I need a badge for a visitor.", "Please announce him at the desk."],
}
tickets = {
    "printer": [
        "Paper is stuck in the copier again.",
        "The colour cartridge is empty.",
        "Nothing comes out of the printer.",
        "Printouts have black stripes.",
        "The copier shows an error.",
        "My document is in the queue for an hour.",
    ],
    "remote access": [
        "No connection to the company network from my flat.",
        "Working from home is impossible, no VPN.",
        "The secure connection breaks off all the time.",
        "I cannot reach the servers from the hotel.",
        "VPN says that the certificate has expired.",
        "Access from outside is very slow.",
    ],
    "heating": [
        "It is freezing in room 12.",
        "Water drips from the radiator.",
        "It is 30 degrees at my desk.",
        "The fan in the ceiling makes noise.",
        "Can someone turn the temperature down?",
        "Cold air all day.",
    ],
    "canteen": [
        "The espresso tastes burnt.",
        "Why is there no salad any more?",
        "The soup was cold.",
        "The snack machine took my money.",
        "Is the menu for next week out?",
        "No clean cups in the kitchen.",
    ],
}
pd.DataFrame([(t, text) for t, texts in examples.items() for text in texts], columns=["label", "text"]).to_csv(
    "examples.csv", index=False
)
truth = np.array([topic for topic, texts in tickets.items() for _ in texts])
pd.DataFrame({"text": [text for texts in tickets.values() for text in texts]}).to_csv("tickets.csv", index=False)
print(f"{3 * len(examples)} examples of {len(examples)} topics, {len(truth)} tickets")

# %%
# ## One command
subprocess.run(["manyway", "label", "examples.csv", "tickets.csv", "-o", "labels.csv"], check=True)

# %%
# ## Check
#
# Each ticket on its own, and all tickets together:
subprocess.run(["manyway", "label", "examples.csv", "tickets.csv", "-o", "each.csv", "--method", "simpleshot"],
               check=True, stdout=subprocess.DEVNULL)  # fmt: skip
together, each = pd.read_csv("labels.csv"), pd.read_csv("each.csv")
print(f"each on its own: {(each.label == truth).mean():.0%} correct, {each.label.nunique()} topics")
print(f"all together:    {(together.label == truth).mean():.0%} correct, {together.label.nunique()} topics")

# %%
# The least certain labels are the ones to look at first:
texts = pd.read_csv("tickets.csv").text
table = together.assign(text=texts, truth=truth).sort_values("probability")
print(table[["text", "label", "probability", "truth"]].head(6).to_string(index=False))

# %%
figure, ax = plt.subplots(figsize=(7, 3))
counts = pd.DataFrame({"each on its own": each.label.value_counts(), "all together": together.label.value_counts()})
counts.reindex(examples).fillna(0).plot.bar(ax=ax, width=0.8)
ax.set(ylabel="tickets", xlabel="")
ax.tick_params(axis="x", rotation=60)
ax.legend(frameon=False)

# %%
# Topics that have a name and no example can be given with `--class-names`; see [label your own
# items](../labelling.md#classes-by-name).
