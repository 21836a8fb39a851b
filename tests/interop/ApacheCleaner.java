// Apache Kafka's own cleaner, asked to clean one log after the other (apache_cleaner.py tells what for).
//   java -cp 'JARS/*' ApacheCleaner.java RETENTION_MS SEGMENT_BYTES INDEX_INTERVAL_BYTES
// A line of standard input is a job, a line of standard output its outcome, "fault ..." if there is none:
//   clean DIRECTORY END_OFFSET NOW_MS FIRST_DIRTY_OFFSET UP_TO   cleans once; "cleaned UP_TO"
//   check DIRECTORY END_OFFSET NOW_MS                            looks everything up by the indexes; "checked" and each
//                                                                aborted transaction as PRODUCER:FIRST:LAST:STABLE
// The log is opened for each as one that was closed in order, and closed. What Kafka warns of is on standard error.

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class ApacheCleaner {
    static final int MAP_BYTES = 1 << 20;
    static final int BUFFER_BYTES = 1 << 16;
    static final int HOUR_MS = 3_600_000;
    static final int DAY_MS = 24 * HOUR_MS;

    static LogConfig config;

    public static void main(String[] words) throws IOException {
        config = new LogConfig(Map.of(
            "cleanup.policy", "compact",
            "delete.retention.ms", words[0],
            "internal.segment.bytes", words[1],
            "index.interval.bytes", words[2],
            "file.delete.delay.ms", "0"));
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            try {
                System.out.println(outcome(line.split(" ")));
            } catch (Exception | AssertionError fault) {
                System.out.println("fault " + fault.toString().replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    static String outcome(String[] job) throws Exception {
        Time clock = new FixedClock(Long.parseLong(job[3]));
        UnifiedLog log = UnifiedLog.create(
            new File(job[1]), config, 0, Long.parseLong(job[2]), new AtOnce(), new BrokerTopicStats(), clock,
            HOUR_MS, new ProducerStateManagerConfig(DAY_MS, false), HOUR_MS, new LogDirFailureChannel(1), true,
            Optional.empty());
        try {
            if (log.logEndOffset() != Long.parseLong(job[2]))
                throw new IllegalStateException("the log ends at " + log.logEndOffset());
            return job[0].equals("clean")
                ? cleaned(log, clock, Long.parseLong(job[4]), Long.parseLong(job[5]))
                : checked(log);
        } finally {
            log.close();
        }
    }

    static String cleaned(UnifiedLog log, Time clock, long firstDirty, long upTo) throws Exception {
        Throttler throttler = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "throttler", "entries", clock);
        SkimpyOffsetMap map = new SkimpyOffsetMap(MAP_BYTES);
        Cleaner cleaner = new Cleaner(0, map, BUFFER_BYTES, BUFFER_BYTES, 0.9, throttler, clock, partition -> { });
        LogToClean all = new LogToClean(log, firstDirty, upTo, true);
        if (all.firstUncleanableOffset() != upTo)
            throw new IllegalStateException("segments are bounded by " + all.firstUncleanableOffset());
        return "cleaned " + cleaner.doClean(all, clock.milliseconds()).getKey();
    }

    static String checked(UnifiedLog log) throws IOException {
        for (LogSegment segment : log.logSegments()) {
            segment.offsetIndex().sanityCheck();
            segment.timeIndex().sanityCheck();
            segment.txnIndex().sanityCheck();
            long base = segment.baseOffset(), largest = -1;
            for (FileChannelRecordBatch batch : segment.log().batches()) {
                batch.ensureValid();
                for (long offset : new long[] {batch.baseOffset(), batch.lastOffset()})
                    same(batch.position(), segment.translateOffset(offset).position, "position of " + offset);
                long time = batch.maxTimestamp();
                same(Optional.ofNullable(segment.log().searchForTimestamp(time, 0, base)),
                    segment.findOffsetByTimestamp(time, base), "offset at " + time);
                largest = Math.max(largest, time);
            }
            if (largest >= 0) same(largest, segment.largestTimestamp(), "largest timestamp from " + base);
        }
        return "checked" + log.collectAbortedTransactions(0, log.logEndOffset()).stream()
            .map(each -> " " + each.producerId() + ":" + each.firstOffset() + ":" + each.lastOffset()
                + ":" + each.lastStableOffset())
            .collect(Collectors.joining());
    }

    static void same(Object there, Object found, String what) {
        if (!there.equals(found)) throw new IllegalStateException(what + " is " + there + ", but found is " + found);
    }

    /** Time stands still. */
    record FixedClock(long milliseconds) implements Time {
        @Override public long nanoseconds() { return TimeUnit.MILLISECONDS.toNanos(milliseconds); }
        @Override public void sleep(long ms) { }
        @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    /** What is to be done later is done at once, what is to be done again and again never. */
    static class AtOnce implements Scheduler {
        static final ScheduledThreadPoolExecutor NEVER = new ScheduledThreadPoolExecutor(1);

        @Override public void startup() { }
        @Override public void shutdown() { }
        @Override public void resizeThreadPool(int newSize) { }
        @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) task.run();
            return NEVER.schedule(() -> { }, 1, TimeUnit.DAYS);
        }
    }
}
