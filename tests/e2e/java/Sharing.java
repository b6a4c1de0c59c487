import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;

/** Two consumers of the new protocol share a topic; one leaves, the other takes over; all is read and committed once. */
public class Sharing {
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], topic = "sharing";
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", address));
        try (Admin admin = Admin.create(config)) {
            admin.createTopics(List.of(new NewTopic(topic, 4, (short) 1))).all().get();
            Consumer<String, String> first = consumer(config), second = consumer(config);
            first.subscribe(List.of(topic));
            second.subscribe(List.of(topic));
            Set<TopicPartition> all = new HashSet<>();
            while (first.assignment().size() != 2 || second.assignment().size() != 2) {
                first.poll(Duration.ofMillis(50));
                second.poll(Duration.ofMillis(50));
            }
            all.addAll(first.assignment());
            all.addAll(second.assignment());
            System.out.println("shared " + all.size());
            produce(config, topic);
            Set<String> seen = new TreeSet<>();
            int count = 0;
            while (count < 100) {
                for (Consumer<String, String> each : List.of(first, second)) {
                    for (ConsumerRecord<String, String> record : each.poll(Duration.ofMillis(50))) {
                        seen.add(record.value());
                        count++;
                    }
                    each.commitSync();
                }
            }
            System.out.println("read " + count + " different " + seen.size());
            ConsumerGroupDescription found = admin.describeConsumerGroups(List.of("sharing")).all().get().get("sharing");
            System.out.println(found.type() + " " + found.groupState() + " members " + found.members().size());
            second.close();
            while (first.assignment().size() != 4) {
                first.poll(Duration.ofMillis(50));
            }
            long sum = 0;
            for (OffsetAndMetadata each : first.committed(all).values()) {
                sum += each.offset();
            }
            System.out.println("taken over, committed " + sum);
            first.close();
            System.out.println("topics " + admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        }
    }

    static Consumer<String, String> consumer(Map<String, Object> config) {
        Map<String, Object> more = new HashMap<>(config);
        more.putAll(Map.of("group.id", "sharing", "group.protocol", "consumer", "enable.auto.commit", "false"));
        more.put("auto.offset.reset", "earliest");
        String text = "org.apache.kafka.common.serialization.StringDeserializer";
        more.putAll(Map.of("key.deserializer", text, "value.deserializer", text));
        return new KafkaConsumer<>(more);
    }

    static void produce(Map<String, Object> config, String topic) {
        Map<String, Object> more = new HashMap<>(config);
        String text = "org.apache.kafka.common.serialization.StringSerializer";
        more.putAll(Map.of("key.serializer", text, "value.serializer", text));
        try (Producer<String, String> producer = new KafkaProducer<>(more)) {
            for (int number = 0; number < 100; number++) {
                producer.send(new ProducerRecord<>(topic, "" + number, "" + number));
            }
        }
    }
}
