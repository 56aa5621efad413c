"""Push notifications about public tenders of Chile: NotiChileC's worker, rebuilt on sereno."""
