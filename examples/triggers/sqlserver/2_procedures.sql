-- What a worker calls: claim, renew, report, set the next instant. Not tested against a live server: parsed and
-- linted only.

-- Filtered indexes and updates of their tables need these, also when a procedure was created by an old client.
SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO

-- Return the first instant of an interval after @NowUtc. Aligned ones are multiples of the interval since 2000-01-01.
-- Missed instants are represented by one. Days and seconds are added apart, because DATEADD takes an int.
CREATE OR ALTER FUNCTION triggers.fn_NextInterval(
    @IntervalSeconds int,
    @AlignToClock bit,
    @CountFromEnd bit,
    @PlannedAtUtc datetime2(3),
    @NowUtc datetime2(3)
)
RETURNS datetime2(3)
AS
BEGIN
    DECLARE @Base datetime2(3) = CASE
        WHEN @AlignToClock = 1 THEN '2000-01-01'
        WHEN @CountFromEnd = 1 OR @PlannedAtUtc IS NULL THEN @NowUtc
        ELSE @PlannedAtUtc
    END;
    DECLARE @Passed bigint = DATEDIFF_BIG(SECOND, @Base, @NowUtc);
    DECLARE @Ahead bigint = (@Passed / @IntervalSeconds + 1) * @IntervalSeconds;
    DECLARE @Next datetime2(3) = DATEADD(SECOND, @Ahead % 86400, DATEADD(DAY, @Ahead / 86400, @Base));
    RETURN @Next;
END;
GO

-- Claim up to @MaxToClaim due triggers, atomically, and return what the worker has to call. Only triggers whose
-- procedure is allowed and exists; none while another trigger with the same ConcurrencyKey holds an unexpired lock.
--
-- The application lock lets one worker claim at a time: two claims at the same moment could otherwise take two rows
-- with one ConcurrencyKey, because each would see the other's row as it was. UPDLOCK keeps the rows from those that
-- report or renew, and READPAST skips rows that these are changing, instead of waiting.
--
-- @NowUtc is for tests; without it, the clock of the server decides.
CREATE OR ALTER PROCEDURE triggers.usp_ClaimDueTriggers
    @NowUtc datetime2(3) = NULL,
    @WorkerId nvarchar(200),
    @MaxToClaim int = 1
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    SET @NowUtc = COALESCE(@NowUtc, SYSUTCDATETIME());

    DECLARE @Locked int;
    DECLARE @Lost TABLE (RunId uniqueidentifier NOT NULL);
    DECLARE @Claimed TABLE (
        RunId uniqueidentifier NOT NULL,
        TriggerId bigint NOT NULL,
        ProcedureSchema sysname NOT NULL,
        ProcedureName sysname NOT NULL,
        ParamsJson nvarchar(max) NOT NULL,
        PlannedAtUtc datetime2(3) NOT NULL,
        Attempt int NOT NULL,
        LockedUntilUtc datetime2(3) NOT NULL,
        ScheduleType tinyint NOT NULL,
        CronExpression nvarchar(100) NULL,
        TimeZoneId nvarchar(64) NOT NULL
    );

    BEGIN TRANSACTION;

    EXEC @Locked = sys.sp_getapplock
        @Resource = N'triggers.usp_ClaimDueTriggers',
        @LockMode = N'Exclusive',
        @LockOwner = N'Transaction',
        @LockTimeout = 5000;
    IF @Locked < 0
        THROW 50002, N'Another worker has been claiming for five seconds: try again.', 1;

    -- A lease that has expired is a worker that died: its run counts as a failure, so that a procedure that kills its
    -- workers is not called for ever.
    UPDATE t
    SET
        t.CurrentRunId = NULL,
        t.LockedUntilUtc = NULL,
        t.LockedBy = NULL,
        t.LastStatus = N'Failed',
        t.CurrentRetryCount = t.CurrentRetryCount + 1,
        t.IsEnabled = CASE WHEN t.CurrentRetryCount >= t.MaxRetries THEN 0 ELSE t.IsEnabled END
    OUTPUT deleted.CurrentRunId INTO @Lost
    FROM triggers.EventTriggers AS t WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE t.LockedUntilUtc < @NowUtc;

    UPDATE r
    SET
        r.Status = N'Lost',
        r.FinishedAtUtc = @NowUtc,
        r.ErrorMessage = N'The lease has expired: its worker died, or was cut off.'
    FROM triggers.EventTriggerRuns AS r
    INNER JOIN @Lost AS l ON r.RunId = l.RunId;

    WITH due AS (
        SELECT
            t.TriggerId,
            t.NextRunAtUtc,
            ROW_NUMBER() OVER (
                PARTITION BY t.ConcurrencyKey, CASE WHEN t.ConcurrencyKey IS NULL THEN t.TriggerId END
                ORDER BY t.NextRunAtUtc, t.TriggerId
            ) AS Place
        FROM triggers.EventTriggers AS t WITH (UPDLOCK, READPAST, ROWLOCK)
        INNER JOIN triggers.AllowedProcedures AS a
            ON t.ProcedureSchema = a.SchemaName AND t.ProcedureName = a.ProcedureName
        WHERE
            t.IsEnabled = 1
            AND t.NextRunAtUtc <= @NowUtc
            AND t.CurrentRunId IS NULL
            AND OBJECT_ID(QUOTENAME(t.ProcedureSchema) + N'.' + QUOTENAME(t.ProcedureName), N'P') IS NOT NULL
            -- Without READPAST: a row that is being renewed is waited for, not taken for a free key.
            AND NOT EXISTS (
                SELECT 1
                FROM triggers.EventTriggers AS other
                WHERE other.ConcurrencyKey = t.ConcurrencyKey AND other.CurrentRunId IS NOT NULL
            )
    ),

    chosen AS (
        SELECT TOP (@MaxToClaim) due.TriggerId
        FROM due
        WHERE due.Place = 1
        ORDER BY due.NextRunAtUtc, due.TriggerId
    )

    UPDATE t
    SET
        t.CurrentRunId = NEWID(),
        t.LockedUntilUtc = DATEADD(SECOND, t.LeaseSeconds, @NowUtc),
        t.LockedBy = @WorkerId,
        t.PlannedAtUtc = CASE WHEN t.CurrentRetryCount = 0 THEN t.NextRunAtUtc ELSE t.PlannedAtUtc END,
        t.LastRunAtUtc = @NowUtc,
        t.LastStatus = N'Running'
    OUTPUT
        inserted.CurrentRunId,
        inserted.TriggerId,
        inserted.ProcedureSchema,
        inserted.ProcedureName,
        inserted.ParamsJson,
        inserted.PlannedAtUtc,
        inserted.CurrentRetryCount + 1,
        inserted.LockedUntilUtc,
        inserted.ScheduleType,
        inserted.CronExpression,
        inserted.TimeZoneId
    INTO @Claimed
    FROM triggers.EventTriggers AS t
    INNER JOIN chosen ON t.TriggerId = chosen.TriggerId;

    INSERT INTO triggers.EventTriggerRuns (RunId, TriggerId, PlannedAtUtc, Attempt, WorkerId, StartedAtUtc, Status)
    SELECT
        c.RunId,
        c.TriggerId,
        c.PlannedAtUtc,
        c.Attempt,
        @WorkerId AS WorkerId,
        @NowUtc AS StartedAtUtc,
        N'Running' AS Status
    FROM @Claimed AS c;

    COMMIT TRANSACTION;

    SELECT
        c.RunId,
        c.TriggerId,
        c.ProcedureSchema,
        c.ProcedureName,
        c.ParamsJson,
        c.PlannedAtUtc,
        c.Attempt,
        c.LockedUntilUtc,
        c.ScheduleType,
        c.CronExpression,
        c.TimeZoneId
    FROM @Claimed AS c
    ORDER BY c.PlannedAtUtc, c.TriggerId;
END;
GO

-- The heartbeat of a run: every third of its lease. @IsMine = 0: the worker has lost it, and must stop the call.
CREATE OR ALTER PROCEDURE triggers.usp_RenewTriggerLease
    @RunId uniqueidentifier,
    @IsMine bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE t
    SET t.LockedUntilUtc = DATEADD(SECOND, t.LeaseSeconds, SYSUTCDATETIME())
    FROM triggers.EventTriggers AS t
    WHERE t.CurrentRunId = @RunId AND t.LockedUntilUtc >= SYSUTCDATETIME();
    SET @IsMine = CASE WHEN @@ROWCOUNT = 1 THEN 1 ELSE 0 END;
END;
GO

-- Report the end of a run: state, run and next instant change in one transaction. Call it in the transaction of the
-- procedure, and both commit or neither. A run that was lost changes nothing (error 50001).
--
-- @NextRunAtUtc: the next instant of a cron trigger, which the worker computes in its TimeZoneId. Without it, a cron
-- trigger waits for usp_SetNextRunAt.
CREATE OR ALTER PROCEDURE triggers.usp_ReportTriggerRunResult
    @RunId uniqueidentifier,
    @Success bit,
    @ErrorMessage nvarchar(max) = NULL,
    @NextRunAtUtc datetime2(3) = NULL
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @NowUtc datetime2(3) = SYSUTCDATETIME();

    BEGIN TRANSACTION;

    UPDATE t
    SET
        t.CurrentRunId = NULL,
        t.LockedUntilUtc = NULL,
        t.LockedBy = NULL,
        t.LastStatus = CASE WHEN @Success = 1 THEN N'Success' ELSE N'Failed' END,
        t.CurrentRetryCount = CASE WHEN @Success = 1 THEN 0 ELSE t.CurrentRetryCount + 1 END,
        t.IsEnabled = CASE
            WHEN @Success = 1 AND t.ScheduleType = 1 THEN 0
            WHEN @Success = 0 AND t.CurrentRetryCount >= t.MaxRetries THEN 0
            ELSE t.IsEnabled
        END,
        t.NextRunAtUtc = CASE
            -- 1, 2, 4, 8 ... times the backoff, at most an hour.
            WHEN @Success = 0
                THEN DATEADD(
                    SECOND,
                    CASE
                        WHEN t.CurrentRetryCount >= 12 THEN 3600
                        WHEN t.BackoffSeconds * POWER(2, t.CurrentRetryCount) > 3600 THEN 3600
                        ELSE t.BackoffSeconds * POWER(2, t.CurrentRetryCount)
                    END,
                    @NowUtc
                )
            WHEN t.ScheduleType = 2
                THEN triggers.fn_NextInterval(
                    t.IntervalSeconds, t.AlignToClock, t.CountFromEnd, t.PlannedAtUtc, @NowUtc
                )
            WHEN t.ScheduleType = 3 THEN @NextRunAtUtc
        END
    FROM triggers.EventTriggers AS t
    WHERE t.CurrentRunId = @RunId AND t.LockedUntilUtc >= @NowUtc;

    IF @@ROWCOUNT <> 1
        THROW 50001, N'This worker no longer holds the run: undo what it has done.', 1;

    UPDATE r
    SET
        r.Status = CASE WHEN @Success = 1 THEN N'Success' ELSE N'Failed' END,
        r.FinishedAtUtc = @NowUtc,
        r.ErrorMessage = @ErrorMessage
    FROM triggers.EventTriggerRuns AS r
    WHERE r.RunId = @RunId;

    COMMIT TRANSACTION;
END;
GO

-- Set the next instant of a cron trigger: when it is created, or after a run. Not of one that runs or waits for a
-- retry, which would lose its planned instant. Return the number of triggers that were changed.
CREATE OR ALTER PROCEDURE triggers.usp_SetNextRunAt
    @TriggerId bigint,
    @NextRunAtUtc datetime2(3)
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE t
    SET t.NextRunAtUtc = @NextRunAtUtc
    FROM triggers.EventTriggers AS t
    WHERE
        t.TriggerId = @TriggerId
        AND t.ScheduleType = 3
        AND t.IsEnabled = 1
        AND t.CurrentRunId IS NULL
        AND t.CurrentRetryCount = 0;
    RETURN @@ROWCOUNT;
END;
GO
