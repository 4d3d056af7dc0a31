"""What can the server of a federated-learning system, or another participant, learn about its clients?"""
