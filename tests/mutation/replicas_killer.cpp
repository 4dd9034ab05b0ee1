// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of comparisons of replicas and of hashes over ranks must fail: bits are flipped in
// one rank's memory, and hashes are those of a sum over whole tensors that is made here.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>

namespace sk = shardkit;

namespace {

struct Weight : sk::Param<"weight", float, 9, 12>, sk::tp::Split<1> {};
struct Rows : sk::Param<"rows", float, 4, 5>, sk::tp::Split<0> {};
struct Bias : sk::Param<"bias", float, 3> {};
using Net = sk::Params<Weight, Rows, Bias>;
using Layer = sk::Sharded<Net, sk::DynamicPolicy>;

void expect(bool condition, const std::string& what) {
    if (condition) { return; }
    std::puts(what.c_str());
    std::exit(1);
}

struct Training {
    Training(sk::Rank& rank, std::string_view policy)
        : layer(rank, "layer", sk::Shapes<Net>{}, Layer::Options{sk::named_policy(policy)}),
          model{layer},
          optimizer{model, {.learning_rate = 0.01}} {
        layer.initialize([](auto, auto, std::uint64_t i) { return std::sin(static_cast<double>(i)); });
    }
    void step() {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < Net::count; ++p) {
            auto view = gradients.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) {
                view.data()[i] = static_cast<float>(layer.parameters()[p].part.whole_index(i) % 5);
            }
        }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
    }
    std::string verified() {
        try {
            sk::verify_replicas(model, optimizer);
        } catch (const sk::ReplicaError& error) { return error.what(); }
        return "";
    }

    Layer layer;
    sk::Model model;
    sk::AdamW optimizer;
};

/// What is told once `victim` has flipped a bit of what it holds of a parameter.
void check_flip(std::size_t dp, std::size_t tp, std::string_view policy, std::size_t victim, std::string_view kind,
                std::string_view parameter, const std::string& told) {
    sk::threads::run(sk::DeviceMesh<sk::dynamic, sk::dynamic>{dp, tp}, [&](auto& rank) {
        const std::string where = std::string(policy) + " on " + std::to_string(dp) + "x" + std::to_string(tp) + ": ";
        Training training(rank, policy);
        training.step();
        const std::string before = training.verified();
        expect(before.empty(), where + "equal ranks differ: " + before);
        auto infos = training.layer.shards();
        for (auto& info : training.optimizer.shards()) { infos.push_back(std::move(info)); }
        for (const sk::ShardInfo& info : infos) {
            if (rank.rank() != victim || info.kind != kind || info.parameter != parameter) { continue; }
            *static_cast<unsigned char*>(const_cast<void*>(info.data)) ^= 1U;
        }
        const std::string said = training.verified();
        const std::string expected = told.empty() ? ""
                                                  : "verify_replicas: 'layer' " + std::string(kind) + " of '" +
                                                        std::string(parameter) + "' differs " + told + "; expected";
        expect(told.empty() ? said.empty() : said.starts_with(expected), where + said + ", expected " + expected);
    });
}

std::uint64_t sum_of(Layer& layer) {
    std::uint64_t sum = 0;
    for (const sk::PlacedParameter& p : layer.parameters()) {
        std::vector<float> whole(p.shape.numel());
        layer.read_full(p.name, std::span(whole));
        sk::detail::Fnv seed;
        seed.add(p.name);
        for (std::size_t i = 0; i < whole.size(); ++i) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, &whole[i], sizeof bits);
            sum += sk::detail::element_digest(seed.hash, i, bits);
        }
    }
    return sum;
}

void check_hash(std::size_t dp, std::size_t tp, std::string_view policy) {
    sk::threads::run(sk::DeviceMesh<sk::dynamic, sk::dynamic>{dp, tp}, [&](auto& rank) {
        Training training(rank, policy);
        const std::string where = std::string(policy) + ": another hash than that of the whole tensors";
        // Whole on every rank before the first step, also where each then updates a shard.
        expect(sk::hash_values(training.model)[0].hash == sum_of(training.layer), where);
        training.step();
        const auto hashes = sk::hash_values(training.model);
        expect(hashes.size() == 1 && hashes[0].hash == sum_of(training.layer), where + ", after a step");
    });
}

/// Lanes of a device's kernel add up to the digest of one pass.
void check_lanes() {
    constexpr std::size_t count = 100;
    std::vector<std::uint16_t> words(count);
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < count; ++i) {
        words[i] = static_cast<std::uint16_t>(i * 40503U);
        expected += sk::detail::element_digest(5, i, words[i]);
    }
    std::vector<std::uint64_t> sums(7);
    sk::TensorShape shape;
    shape.rank = 1;
    shape.extents[0] = count;
    const sk::detail::DigestElements<std::uint16_t> work{
        words.data(), count, sums.size(), sk::TensorPart(shape), 0, 1, 5, sums.data()};
    for (std::size_t lane = 0; lane < sums.size(); ++lane) { work(lane); }
    std::uint64_t sum = 0;
    sk::detail::FoldDigests{sums, &sum}();
    expect(sum == expected, "lanes do not add up");
}

}  // namespace

int main() {
    check_flip(3, 1, "no_shard", 1, "parameter", "weight", "on rank 1 from the majority, ranks 0 and 2");
    check_flip(2, 1, "no_shard", 1, "exp_avg", "bias", "between ranks 0 and 1, and no majority says which is wrong");
    check_flip(2, 1, "shard_optimizer", 0, "exp_avg", "weight", "");
    check_flip(4, 1, "hybrid_shard:2", 1, "parameter", "weight",
               "between ranks 1 and 3, and no majority says which is wrong");
    check_flip(1, 2, "full_shard", 1, "parameter", "bias",
               "between ranks 0 and 1, and no majority says which is wrong");
    check_flip(1, 2, "full_shard", 1, "exp_avg", "weight", "");
    check_flip(2, 2, "no_shard", 0, "parameter", "rows",
               "between ranks 0 and 2, and no majority says which is wrong");
    sk::threads::run(sk::DeviceMesh<3>{}, [](auto& rank) {
        Training training(rank, "full_shard");
        if (rank.rank() == 2) { training.optimizer.set_learning_rate(0.02); }
        expect(training.verified().starts_with(
                   "verify_replicas: the optimizer's set of hyper-parameters differs on rank 2 "),
               "another learning rate is not found");
    });
    check_hash(1, 1, "no_shard");
    check_hash(3, 1, "no_shard");
    check_hash(3, 1, "shard_optimizer");
    check_hash(4, 1, "hybrid_shard:2");
    check_hash(2, 2, "full_shard");
    check_lanes();
    std::puts("replicas are compared");
}
