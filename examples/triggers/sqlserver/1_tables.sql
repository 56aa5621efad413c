-- Tables of the triggers on SQL Server 2016 or newer. Run the files in the order of their numbers; each can be
-- repeated. All times are UTC. Not tested against a live server: parsed and linted only.

IF SCHEMA_ID(N'triggers') IS NULL
BEGIN
    EXEC sys.sp_executesql @stmt = N'CREATE SCHEMA triggers';
END;
GO

-- Procedures that triggers may call. usp_AllowProcedure writes it.
IF OBJECT_ID(N'triggers.AllowedProcedures', N'U') IS NULL
    CREATE TABLE triggers.AllowedProcedures (
        SchemaName sysname NOT NULL,
        ProcedureName sysname NOT NULL,
        AllowedBy sysname NOT NULL CONSTRAINT DF_AllowedProcedures_AllowedBy DEFAULT SUSER_SNAME(),
        AllowedAtUtc datetime2(3) NOT NULL CONSTRAINT DF_AllowedProcedures_AllowedAtUtc DEFAULT SYSUTCDATETIME(),
        CONSTRAINT PK_AllowedProcedures PRIMARY KEY (SchemaName, ProcedureName)
    );
GO

-- What to call, when, how to retry, and the state. CurrentRunId is the fence: the run that holds the lock.
IF OBJECT_ID(N'triggers.EventTriggers', N'U') IS NULL
    CREATE TABLE triggers.EventTriggers (
        TriggerId bigint IDENTITY (1, 1) NOT NULL CONSTRAINT PK_EventTriggers PRIMARY KEY,
        TriggerName nvarchar(200) NOT NULL CONSTRAINT UQ_EventTriggers_TriggerName UNIQUE,
        ProcedureSchema sysname NOT NULL,
        ProcedureName sysname NOT NULL,
        ParamsJson nvarchar(max) NOT NULL CONSTRAINT DF_EventTriggers_ParamsJson DEFAULT N'{}',
        -- 1 once, 2 interval, 3 cron.
        ScheduleType tinyint NOT NULL,
        RunAtUtc datetime2(3) NULL,
        IntervalSeconds int NULL,
        AlignToClock bit NOT NULL CONSTRAINT DF_EventTriggers_AlignToClock DEFAULT 0,
        -- What an interval is counted from: 0 the planned instant before, 1 the end of the last run.
        CountFromEnd bit NOT NULL CONSTRAINT DF_EventTriggers_CountFromEnd DEFAULT 0,
        CronExpression nvarchar(100) NULL,
        TimeZoneId nvarchar(64) NOT NULL CONSTRAINT DF_EventTriggers_TimeZoneId DEFAULT N'UTC',
        MaxRetries int NOT NULL CONSTRAINT DF_EventTriggers_MaxRetries DEFAULT 5,
        BackoffSeconds int NOT NULL CONSTRAINT DF_EventTriggers_BackoffSeconds DEFAULT 60,
        LeaseSeconds int NOT NULL CONSTRAINT DF_EventTriggers_LeaseSeconds DEFAULT 60,
        ConcurrencyKey nvarchar(200) NULL,
        IsEnabled bit NOT NULL CONSTRAINT DF_EventTriggers_IsEnabled DEFAULT 1,
        NextRunAtUtc datetime2(3) NULL,
        -- The instant that a run and its retries stand for.
        PlannedAtUtc datetime2(3) NULL,
        LastRunAtUtc datetime2(3) NULL,
        LastStatus nvarchar(20) NULL,
        CurrentRetryCount int NOT NULL CONSTRAINT DF_EventTriggers_CurrentRetryCount DEFAULT 0,
        LockedUntilUtc datetime2(3) NULL,
        LockedBy nvarchar(200) NULL,
        CurrentRunId uniqueidentifier NULL,
        CONSTRAINT FK_EventTriggers_AllowedProcedures FOREIGN KEY (ProcedureSchema, ProcedureName)
        REFERENCES triggers.AllowedProcedures (SchemaName, ProcedureName),
        CONSTRAINT CK_EventTriggers_ParamsJson CHECK (ISJSON(ParamsJson) = 1),
        CONSTRAINT CK_EventTriggers_Schedule CHECK (
            (ScheduleType = 1 AND RunAtUtc IS NOT NULL)
            OR (ScheduleType = 2 AND IntervalSeconds > 0)
            OR (ScheduleType = 3 AND CronExpression IS NOT NULL)
        ),
        CONSTRAINT CK_EventTriggers_NextRunAtUtc CHECK (
            NextRunAtUtc IS NOT NULL OR IsEnabled = 0 OR ScheduleType = 3
        ),
        CONSTRAINT CK_EventTriggers_Numbers CHECK (
            MaxRetries BETWEEN 0 AND 100 AND BackoffSeconds BETWEEN 1 AND 3600 AND LeaseSeconds BETWEEN 5 AND 86400
        ),
        CONSTRAINT CK_EventTriggers_Lock CHECK (
            (CurrentRunId IS NULL AND LockedUntilUtc IS NULL)
            OR (CurrentRunId IS NOT NULL AND LockedUntilUtc IS NOT NULL)
        )
    );
GO

-- Each attempt: it is written when it begins, so that a worker that dies leaves a record.
IF OBJECT_ID(N'triggers.EventTriggerRuns', N'U') IS NULL
    CREATE TABLE triggers.EventTriggerRuns (
        RunId uniqueidentifier NOT NULL,
        TriggerId bigint NOT NULL,
        PlannedAtUtc datetime2(3) NOT NULL,
        Attempt int NOT NULL,
        WorkerId nvarchar(200) NOT NULL,
        StartedAtUtc datetime2(3) NOT NULL,
        FinishedAtUtc datetime2(3) NULL,
        -- Running, Success, Failed; Lost: its worker died.
        Status nvarchar(20) NOT NULL,
        ErrorMessage nvarchar(max) NULL,
        CONSTRAINT PK_EventTriggerRuns PRIMARY KEY NONCLUSTERED (RunId),
        CONSTRAINT FK_EventTriggerRuns_EventTriggers FOREIGN KEY (TriggerId)
        REFERENCES triggers.EventTriggers (TriggerId),
        CONSTRAINT CK_EventTriggerRuns_Status CHECK (Status IN (N'Running', N'Success', N'Failed', N'Lost'))
    );
GO

IF INDEXPROPERTY(OBJECT_ID(N'triggers.EventTriggers'), N'IX_EventTriggers_NextRunAtUtc', N'IndexID') IS NULL
    CREATE INDEX IX_EventTriggers_NextRunAtUtc
    ON triggers.EventTriggers (NextRunAtUtc)
    INCLUDE (ConcurrencyKey, LockedUntilUtc)
    WHERE IsEnabled = 1;
GO

IF INDEXPROPERTY(OBJECT_ID(N'triggers.EventTriggers'), N'IX_EventTriggers_ConcurrencyKey', N'IndexID') IS NULL
    CREATE INDEX IX_EventTriggers_ConcurrencyKey
    ON triggers.EventTriggers (ConcurrencyKey, LockedUntilUtc)
    WHERE CurrentRunId IS NOT NULL;
GO

IF INDEXPROPERTY(OBJECT_ID(N'triggers.EventTriggerRuns'), N'IX_EventTriggerRuns_TriggerId', N'IndexID') IS NULL
    CREATE CLUSTERED INDEX IX_EventTriggerRuns_TriggerId ON triggers.EventTriggerRuns (TriggerId, StartedAtUtc);
GO
