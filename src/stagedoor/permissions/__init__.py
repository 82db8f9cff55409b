"""What an agent may do: risk, policy, the open questions, the audit."""
