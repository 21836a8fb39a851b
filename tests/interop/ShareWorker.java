// A member of a share group with Apache Kafka's own client, which does what lines on stdin say.
//   java -cp 'JARS/*' ShareWorker.java BOOTSTRAP GROUP TOPIC
// "poll" prints "record OFFSET PARTITION COUNT VALUE" for each record it gets. "ACCEPT|RELEASE|REJECT|RENEW
// PARTITION:OFFSET..." acknowledges records and prints "error ..." for each partition that the broker refuses. Each
// command ends with "done". At the end of stdin the member leaves the group.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareWorker {
    static final Map<String, ConsumerRecord<String, String>> held = new HashMap<>();

    public static void main(String[] words) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words[0]);
        properties.put("group.id", words[1]);
        properties.put("share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(words[2]));
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                List<String> command = Arrays.asList(line.split(" "));
                if (command.get(0).equals("poll")) poll(consumer);
                else acknowledge(consumer, AcknowledgeType.valueOf(command.get(0)), command.subList(1, command.size()));
                System.out.println("done");
            }
        }
    }

    static void poll(KafkaShareConsumer<String, String> consumer) {
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
            held.put(each.partition() + ":" + each.offset(), each);
            System.out.println("record " + each.offset() + " " + each.partition() + " " + each.deliveryCount().get() + " "
                + each.value());
        }
    }

    static void acknowledge(KafkaShareConsumer<String, String> consumer, AcknowledgeType how, List<String> places) {
        for (String place : places) consumer.acknowledge(held.remove(place), how);
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : consumer.commitSync().entrySet())
            each.getValue().ifPresent(error -> System.out.println("error " + each.getKey().partition() + " " + error));
    }
}
