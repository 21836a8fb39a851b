// Consume–transform–produce with Apache Kafka's own clients, as transactional_copier.py does it with others.
//   java -cp 'JARS/*' TransactionalCopier.java BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID
// Each partition is copied into the one of the same number, each value with a mark before it, until SIGTERM. Lines tell
// what went wrong: "mended ERROR" after an abort, "anew ERROR" when all had to be begun anew.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

public class TransactionalCopier {
    static volatile boolean closing = false;

    public static void main(String[] words) throws InterruptedException {
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            closing = true;
            try {
                closed.await();
            } catch (InterruptedException late) {
                Thread.currentThread().interrupt();
            }
        }));
        while (!closing) {
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing(words[0], words[4]))) {
                producer.initTransactions();
                try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming(words[0], words[3]))) {
                    consumer.subscribe(List.of(words[1]));
                    while (!closing) {
                        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                        if (!records.isEmpty()) copy(producer, consumer, records, words[2]);
                    }
                }
            } catch (KafkaException error) {
                System.out.println("anew " + error);
            }
        }
        closed.countDown();
    }

    static void copy(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
                     ConsumerRecords<String, String> records, String target) {
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> each : records)
                producer.send(new ProducerRecord<>(target, each.partition(), null, "copy of " + each.value()));
            producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
            producer.commitTransaction();
        } catch (KafkaException error) {
            producer.abortTransaction();
            rewind(consumer);
            System.out.println("mended " + error);
        }
    }

    static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata found = committed.get(place);
            consumer.seek(place, found == null ? 0 : found.offset());
        }
    }

    static Properties settings(String bootstrap, Map<String, String> more) {
        Map<String, String> all = new HashMap<>(more);
        all.put("bootstrap.servers", bootstrap);
        for (String side : List.of("key", "value")) {
            all.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            all.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        Properties properties = new Properties();
        properties.putAll(all);
        return properties;
    }

    static Properties producing(String bootstrap, String transactionalId) {
        return settings(bootstrap, Map.of("transactional.id", transactionalId, "linger.ms", "0"));
    }

    static Properties consuming(String bootstrap, String group) {
        return settings(bootstrap, Map.of("group.id", group, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "max.poll.records", "50",
            "session.timeout.ms", "6000", "heartbeat.interval.ms", "200", "fetch.max.wait.ms", "100"));
    }
}
