import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;

/** What a Java application does: every codec, a transaction with offsets over two topics, a group, the admin. */
public class RoundTrip {
    private static final Duration STEP = Duration.ofSeconds(1);
    private static String server;

    public static void main(String[] arguments) throws Exception {
        server = arguments[0];
        String name = arguments[1];
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(name, 2, (short) 1), new NewTopic(name + "-out", 1, (short) 1)))
                .all().get();
            send(name);
            transact(name);
            describe(admin, name);
        }
        System.out.println("done");
        Runtime.getRuntime().halt(0);
    }

    private static Properties settings(String... pairs) {
        Properties found = new Properties();
        found.put("bootstrap.servers", server);
        for (int at = 0; at < pairs.length; at += 2) {
            found.put(pairs[at], pairs[at + 1]);
        }
        for (String side : List.of("key", "value")) {
            found.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            found.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return found;
    }

    /** 100 records with each codec, by producers with default settings, which are idempotent. */
    private static void send(String topic) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (Producer<String, String> producer = new KafkaProducer<>(settings("compression.type", codec))) {
                for (int number = 0; number < 100; number++) {
                    producer.send(new ProducerRecord<>(topic, number % 2, null, codec + number, "value " + number));
                }
            }
        }
    }

    /** Copy all records to another topic, half of the batches aborted first. */
    private static void transact(String topic) {
        Properties reading = settings("group.id", topic + "-group", "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "enable.auto.commit", "false", "max.poll.records", "100");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(reading);
             Producer<String, String> producer = new KafkaProducer<>(settings("transactional.id", topic + "-copier"))) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            int copied = 0;
            boolean aborts = true;
            while (copied < 500) {
                ConsumerRecords<String, String> records = consumer.poll(STEP);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> one : records) {
                    producer.send(new ProducerRecord<>(topic + "-out", one.key(), one.value()));
                    offsets.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (aborts) {
                    producer.abortTransaction();
                    consumer.committed(consumer.assignment()).forEach((where, offset) ->
                        consumer.seek(where, offset == null ? 0 : offset.offset()));
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
                aborts = !aborts;
            }
        }
        System.out.println("committed " + count(topic + "-out", "read_committed"));
        System.out.println("uncommitted is more " + (count(topic + "-out", "read_uncommitted") > 500));
    }

    private static int count(String topic, String isolation) {
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings("isolation.level", isolation))) {
            TopicPartition where = new TopicPartition(topic, 0);
            consumer.assign(List.of(where));
            consumer.seekToBeginning(List.of(where));
            long end = consumer.endOffsets(List.of(where)).get(where);
            int found = 0;
            while (consumer.position(where) < end) {
                found += consumer.poll(STEP).count();
            }
            return found;
        }
    }

    private static void describe(Admin admin, String name) throws Exception {
        System.out.println("nodes " + admin.describeCluster().nodes().get().size());
        System.out.println("topics " + admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size());
        TopicPartition where = new TopicPartition(name, 0);
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1))) {
            System.out.println("offset " + admin.listOffsets(Map.of(where, spec)).partitionResult(where).get().offset());
        }
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "12345"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(set))).all().get();
        System.out.println("retention " + admin.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms").value());
        System.out.println("low " + admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(7))).lowWatermarks().get(where).get().lowWatermark());
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get();
        System.out.println("group " + admin.describeConsumerGroups(List.of(name + "-group")).all().get().get(name + "-group").state());
        System.out.println("positions " + admin.listConsumerGroupOffsets(name + "-group").partitionsToOffsetAndMetadata().get().size());
        System.out.println("transactions " + admin.describeTransactions(List.of(name + "-copier")).all().get().get(name + "-copier").state());
        System.out.println("producers " + !admin.describeProducers(List.of(new TopicPartition(name + "-out", 0))).all().get().isEmpty());
        System.out.println("disks " + admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).size());
        admin.deleteConsumerGroups(List.of(name + "-group")).all().get();
        admin.deleteTopics(List.of(name, name + "-out")).all().get();
        System.out.println("deleted " + !admin.listTopics().names().get().contains(name));
    }
}
