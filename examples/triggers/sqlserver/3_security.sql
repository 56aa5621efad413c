-- The role of the worker: it may execute four procedures and those on the list, and read no table. The procedures
-- reach the tables by ownership chaining: they have the same owner. Not tested against a live server: parsed and
-- linted only.

IF DATABASE_PRINCIPAL_ID(N'trigger_worker') IS NULL
    CREATE ROLE trigger_worker AUTHORIZATION dbo;
GO

GRANT EXECUTE ON OBJECT::triggers.usp_ClaimDueTriggers TO trigger_worker;
GRANT EXECUTE ON OBJECT::triggers.usp_RenewTriggerLease TO trigger_worker;
GRANT EXECUTE ON OBJECT::triggers.usp_ReportTriggerRunResult TO trigger_worker;
GRANT EXECUTE ON OBJECT::triggers.usp_SetNextRunAt TO trigger_worker;
GO

-- Allow triggers to call a procedure: a row of the list, and the right to execute it. For operators; the worker's
-- role cannot. Names are checked in the catalogue and quoted before they become a part of the statement.
CREATE OR ALTER PROCEDURE triggers.usp_AllowProcedure
    @SchemaName sysname,
    @ProcedureName sysname
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @FullName nvarchar(520) = QUOTENAME(@SchemaName) + N'.' + QUOTENAME(@ProcedureName);
    DECLARE @Statement nvarchar(max) = N'GRANT EXECUTE ON OBJECT::' + @FullName + N' TO trigger_worker';

    IF OBJECT_ID(@FullName, N'P') IS NULL
        THROW 50003, N'There is no such procedure.', 1;
    IF @SchemaName IN (N'triggers', N'sys') OR @ProcedureName LIKE N'sp[_]%'
        THROW 50004, N'It belongs to the triggers or to the server: write a procedure of your own that calls it.', 1;

    BEGIN TRANSACTION;
    INSERT INTO triggers.AllowedProcedures (SchemaName, ProcedureName)
    SELECT
        @SchemaName AS SchemaName,
        @ProcedureName AS ProcedureName
    WHERE NOT EXISTS (
        SELECT 1
        FROM triggers.AllowedProcedures AS a
        WHERE a.SchemaName = @SchemaName AND a.ProcedureName = @ProcedureName
    );
    EXEC sys.sp_executesql @Statement;
    COMMIT TRANSACTION;
END;
GO

-- Take a procedure from the list. The foreign key refuses it while a trigger names it.
CREATE OR ALTER PROCEDURE triggers.usp_RevokeProcedure
    @SchemaName sysname,
    @ProcedureName sysname
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @FullName nvarchar(520) = QUOTENAME(@SchemaName) + N'.' + QUOTENAME(@ProcedureName);
    DECLARE @Statement nvarchar(max) = N'REVOKE EXECUTE ON OBJECT::' + @FullName + N' FROM trigger_worker';

    BEGIN TRANSACTION;
    DELETE FROM triggers.AllowedProcedures
    WHERE SchemaName = @SchemaName AND ProcedureName = @ProcedureName;
    IF OBJECT_ID(@FullName, N'P') IS NOT NULL
    BEGIN
        EXEC sys.sp_executesql @Statement;
    END;
    COMMIT TRANSACTION;
END;
GO
