// SPDX-License-Identifier: Apache-2.0
// A bit that is flipped in one rank's memory is found by the next verify_replicas, in every kind of buffer, with the
// same error on every rank. Which ranks hold the same elements is derived from ShardInfos, not from placement tables.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/local_shards.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verify.hpp>

#include "test_size.hpp"
#include "unit/sharded/custom_policies.hpp"
#include "unit/thrown_message.hpp"

namespace verify_replicas_test {

namespace sk = shardkit;

struct Weight : sk::Param<"weight", sk::bf16, 67, 12>, sk::tp::Split<1> {};
struct Bias : sk::Param<"bias", sk::bf16, 33> {};
struct Fixed : sk::Param<"fixed", sk::bf16, 5>, sk::Frozen {};
using Net = sk::Params<Weight, Bias, Fixed>;
using Layer = sk::Sharded<Net, sk::DynamicPolicy>;

/// Something that a rank holds, which it can spoil.
struct Held {
    std::string what;   ///< as an error says it
    std::string key;    ///< the same on ranks that hold the same elements
    std::byte* memory;  ///< of an element
    bool current = true;
};

template <sk::StateFormat Format>
struct Trainer {
    using Optimizer = sk::AdamW;

    static Layer::Options options(const sk::DynamicPolicy& policy, sk::MasterWeights master) {
        Layer::Options all{policy};
        all.master = master;
        return all;
    }
    Trainer(sk::Rank& rank, const sk::DynamicPolicy& policy, sk::MasterWeights master)
        : layer(rank, "layer", sk::Shapes<Net>{}, options(policy, master)),
          model{layer},
          optimizer(model, sk::states_in<Format>, {.learning_rate = 0.01}) {
        layer.initialize([](auto, auto, std::size_t i) { return 0.0137 * static_cast<double>(i % 31) - 0.15; });
    }
    /// Gradients by data rank and whole index, so that tp ranks agree on what none of them splits.
    auto reduced() {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        const auto& grid = layer.rank().grid();
        const auto data_rank = static_cast<double>(grid.coordinate(sk::Dp::name, layer.rank().rank()));
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            auto view = gradients.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) {
                const auto whole = static_cast<double>(layer.parameters()[p].part.whole_index(i) * (p + 1));
                view.data()[i] = sk::bf16(static_cast<float>(std::sin(0.37 * whole + data_rank)));
            }
        }
        accumulation.add(std::move(gradients));
        return sk::reduce(std::move(accumulation), sk::mean);
    }
    void step() { optimizer.step(reduced()); }

    /// What ShardInfos list, and what they do not: halves of split masters, and copies that are kept.
    std::vector<Held> held() {
        std::vector<Held> all;
        std::vector<sk::ShardInfo> infos = layer.shards();
        for (sk::ShardInfo& info : optimizer.shards()) { infos.push_back(std::move(info)); }
        for (const sk::ShardInfo& info : infos) {
            Held one;
            one.what = "'layer' " + std::string(info.kind) + " of '" + info.parameter + "'";
            one.key = one.what;
            for (const sk::layout::Box& box : info.boxes) {
                for (std::size_t d = 0; d < box.rank; ++d) {
                    one.key += " " + std::to_string(box.offsets[d]) + "+" + std::to_string(box.extents[d]);
                }
            }
            const std::size_t element = info.range.size() / 2 * sk::size_of(info.type);
            one.memory = const_cast<std::byte*>(static_cast<const std::byte*>(info.data)) + element;
            one.current = info.current;
            all.push_back(std::move(one));
        }
        auto& group = sk::spi::group(layer);
        for (const sk::detail::HeldMemory& held_memory : group.held()) {
            const sk::detail::HeldMemory values = held_memory.current(group.geometry());
            const std::size_t bytes = sk::size_of(values.values.type());
            const bool half = values.role == sk::detail::Role::master && bytes == 2;
            const bool copy = values.role == sk::detail::Role::gathered || values.role == sk::detail::Role::secondary;
            if (!half && !copy) { continue; }
            // Of the weight, as far as it lies here.
            const sk::IndexRange part = intersect(group.geometry().parameters[0].range, values.flat);
            if (part.empty()) { continue; }
            Held one;
            one.what = "'layer' " + std::string(values.name()) + " of 'weight'";
            one.key = one.what + " " + std::to_string(part.begin) + " " +
                      std::to_string(group.geometry().parameters[0].part.whole_index(0));
            const std::size_t element = (part.begin - values.flat.begin) / values.unit * bytes;
            one.memory = static_cast<std::byte*>(values.values.data()) + element;
            all.push_back(std::move(one));
        }
        return all;
    }

    Layer layer;
    sk::Model model;
    Optimizer optimizer;
};

std::string listed(const std::vector<std::size_t>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
    }
    return text;
}
/// The error once `victim` has spoilt what these ranks hold.
std::string expected(const std::string& what, std::vector<std::size_t> holders, std::size_t victim,
                     sk::SourceLocation where) {
    std::string text = "verify_replicas: " + what;
    if (holders.size() == 2) {
        text += " differs between " + listed(holders) + ", and no majority says which is wrong";
    } else {
        std::erase(holders, victim);
        text += " differs on rank " + std::to_string(victim) + " from the majority, " + listed(holders);
    }
    return text_at(text + "; expected equal bits on ranks that hold the same elements", where);
}

struct Run {
    std::size_t dp = 1;
    std::size_t tp = 1;
    sk::DynamicPolicy policy{sk::NoShard{}};
    sk::MasterWeights master = sk::MasterWeights::kept;
    bool gathered = false;  ///< behind a window, whose gather makes copies current
};

/// Spoils everything on every rank, one after the other. @returns how many spoilt values other ranks hold too
template <sk::StateFormat Format = sk::StateFormat::full>
std::size_t spoil_all(const Run& of) {
    std::vector<std::vector<Held>> held(of.dp * of.tp);
    std::size_t found = 0;
    sk::threads::run(sk::DeviceMesh<sk::dynamic, sk::dynamic>{of.dp, of.tp}, [&](auto& rank) {
        Trainer<Format> trainer(rank, of.policy, of.master);
        trainer.step();
        trainer.step();
        if (of.gathered) { static_cast<void>(trainer.layer.unshard()); }
        held[rank.rank()] = trainer.held();
        sk::barrier(rank.world());
        sk::verify_replicas(trainer.model, trainer.optimizer);
        for (std::size_t victim = 0; victim < held.size(); ++victim) {
            for (const Held& spoilt : held[victim]) {
                std::vector<std::size_t> holders;
                for (std::size_t r = 0; r < held.size(); ++r) {
                    const bool holds = std::any_of(held[r].begin(), held[r].end(), [&](const Held& each) {
                        return each.key == spoilt.key && each.current && spoilt.current;
                    });
                    if (holds) { holders.push_back(r); }
                }
                CAPTURE(spoilt.key);
                const auto flip = [&] {
                    sk::barrier(rank.world());
                    if (rank.rank() == victim) { *spoilt.memory ^= std::byte{4}; }
                    sk::barrier(rank.world());
                };
                flip();
                const sk::SourceLocation where = sk::SourceLocation::current();
                const std::string text = thrown_message<sk::ReplicaError>(
                    [&] { sk::verify_replicas(trainer.model, trainer.optimizer, where); });
                if (holders.size() > 1) {
                    CHECK(text == expected(spoilt.what, holders, victim, where));
                    if (rank.rank() == 0) { ++found; }
                } else {
                    CHECK(text == "nothing was thrown");
                }
                flip();
            }
        }
        sk::verify_replicas(trainer.model, trainer.optimizer);
    });
    return found;
}

TEST_CASE("a flipped bit is found in whatever several ranks hold, and nothing else is compared") {
    using sk::DynamicPolicy;
    // Of each rank: a parameter and its master, of three tensors, and two states of two.
    CHECK(spoil_all({.dp = 3}) == 3 * 10);
    if (!test_size::reduced()) { CHECK(spoil_all({.dp = 2, .tp = 2}) == 4 * 10); }
    // Shards are held once, but for what tp does not split: as much of it as a rank's shard has.
    CHECK(spoil_all({.dp = 3, .policy = DynamicPolicy(sk::FullShard{})}) == 0);
    CHECK(spoil_all({.dp = 1, .tp = 3, .policy = DynamicPolicy(sk::FullShard{})}) == 3 * 6);
    CHECK(spoil_all({.dp = 2, .tp = 2, .policy = DynamicPolicy(sk::FullShard{})}) > 0);
    // Shards of hybrid replicas.
    CHECK(spoil_all({.dp = 4, .policy = DynamicPolicy(sk::HybridShard<2>{})}) >= 4 * 4);
    if (!test_size::reduced()) {
        CHECK(spoil_all({.dp = 6, .policy = DynamicPolicy(sk::HybridShard<2>{})}) >= 6 * 4);
    }
    CHECK(spoil_all({.dp = 4, .policy = DynamicPolicy(sk::HybridOptimizer<2>{}), .gathered = true}) >= 4);
    CHECK(spoil_all({.dp = 4, .policy = DynamicPolicy(sk::SecondaryShard<2>{}), .gathered = true}) >= 4);
    CHECK(spoil_all({.dp = 4, .policy = DynamicPolicy(sk::HybridOptimizer<2>{})}) == 0);
    // Full copies, stale and current: only the latter count.
    CHECK(spoil_all({.dp = 3, .policy = DynamicPolicy(sk::ShardOptimizer{})}) == 0);
    CHECK(spoil_all({.dp = 3, .policy = DynamicPolicy(sk::ShardOptimizer{}), .gathered = true}) >= 3 * 3);
    CHECK(spoil_all({.dp = 3, .policy = DynamicPolicy(toy::KeepUntilUpdate{})}) == 0);
    CHECK(spoil_all({.dp = 3, .policy = DynamicPolicy(toy::KeepUntilUpdate{}), .gathered = true}) == 3);
    CHECK(spoil_all({.dp = 4, .policy = DynamicPolicy(toy::PairedGradOp{})}) >= 4 * 4);
}
TEST_CASE("a flipped bit is found in halves of masters, in codes and in scales of states") {
    // The halves of the weight alone are spoilt.
    CHECK(spoil_all({.dp = 3, .master = sk::MasterWeights::split}) == 3 * (3 + 1 + 4));
    CHECK(spoil_all({.dp = 1, .tp = 2, .master = sk::MasterWeights::split}) == 2 * (2 + 2));
    CHECK(spoil_all<sk::StateFormat::bf16>({.dp = 3}) == 3 * 10);
    // The scales of two states of two tensors.
    CHECK(spoil_all<sk::StateFormat::block8>({.dp = 3}) == 3 * (10 + 4));
    CHECK(spoil_all<sk::StateFormat::block8>({.dp = 4, .policy = sk::DynamicPolicy(sk::HybridShard<2>{})}) > 0);
}

/// What every rank of three is told once rank 1 has done `spoil(trainer)`.
template <class Spoil>
void check_told(const std::string& what, const Spoil& spoil) {
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        Trainer<sk::StateFormat::full> trainer(rank, sk::DynamicPolicy(sk::FullShard{}), sk::MasterWeights::kept);
        sk::LossScale loss_scale{rank};
        trainer.step();
        sk::verify_replicas(trainer.model, trainer.optimizer, loss_scale);
        if (rank.rank() == 1) { spoil(trainer, loss_scale); }
        const sk::SourceLocation where = sk::SourceLocation::current();
        CHECK(thrown_message<sk::ReplicaError>([&] {
                  sk::verify_replicas(trainer.model, trainer.optimizer, loss_scale, where);
              }) == expected(what, {0, 1, 2}, 1, where));
    });
}

TEST_CASE("numbers that every rank holds are compared too: step counts, hyper-parameters, the loss scale") {
    check_told("'layer' count of steps", [](auto& trainer, auto& /*loss_scale*/) {
        sk::detail::OptimizerFrame& any = trainer.optimizer;
        const sk::SourceLocation where = sk::SourceLocation::current();
        auto progress = sk::spi::OptimizerContents(any, where).progress();
        sk::detail::GroupProgress& once = progress.front();
        ++once.own[0];
        for (std::size_t p = 0; p < once.updated.size(); ++p) { ++once.of(p)[0]; }
        sk::spi::OptimizerContents(any, where).set_progress(progress.data(), sk::detail::Change::make);
    });
    check_told("the optimizer's set of hyper-parameters",
               [](auto& trainer, auto& /*loss_scale*/) { trainer.optimizer.set_learning_rate(0.0100001); });
    check_told("the loss scale", [](auto& /*trainer*/, auto& loss_scale) {
        const_cast<sk::LossScaleState*>(loss_scale.data())->update(sk::FoundInf::no);
    });
}

TEST_CASE("reduced gradients are compared between their reduction and their update, where ranks hold the same ones") {
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        Trainer<sk::StateFormat::full> trainer(rank, sk::DynamicPolicy(sk::NoShard{}), sk::MasterWeights::kept);
        auto reduced = trainer.reduced();
        sk::verify_replicas(trainer.model);
        const auto sums = sk::gradient_shard(reduced, trainer.layer).sums();
        auto& spoilt = const_cast<std::remove_cvref_t<decltype(sums[0])>&>(sums[sums.size() / 2]);
        if (rank.rank() == 2) { spoilt += 1; }
        const sk::SourceLocation where = sk::SourceLocation::current();
        try {
            sk::verify_replicas(trainer.model, where);
            FAIL("nothing was thrown");
        } catch (const sk::ReplicaError& error) {
            CHECK(error.what() == expected("'layer' reduced gradient of 'weight'", {0, 1, 2}, 2, where));
            REQUIRE(error.differences().size() == 1);
            CHECK(error.differences()[0].ranks == std::vector<std::size_t>{0, 1, 2});
            CHECK(error.differences()[0].wrong == std::vector<std::size_t>{2});
        }
        if (rank.rank() == 2) { spoilt -= 1; }
        trainer.optimizer.step(std::move(reduced));
        sk::verify_replicas(trainer.model, trainer.optimizer);
    });
}

TEST_CASE("many differences are counted, and a rank alone compares nothing") {
    sk::threads::run(sk::DeviceMesh<5>{}, [&](auto& rank) {
        Trainer<sk::StateFormat::full> trainer(rank, sk::DynamicPolicy(sk::NoShard{}), sk::MasterWeights::kept);
        const auto value = [&](auto, auto, std::size_t i) {
            return static_cast<double>(i % 7) + (rank.rank() % 2 == 0 ? 0 : 1);
        };
        trainer.layer.initialize(value);  // ranks 1 and 3 make other values
        const sk::SourceLocation where = sk::SourceLocation::current();
        const std::string text = thrown_message<sk::ReplicaError>([&] { sk::verify_replicas(trainer.model, where); });
        CHECK(has(text,
                  "verify_replicas: 'layer' parameter of 'weight' differs on ranks 1 and 3 from the majority, "
                  "ranks 0, 2 and 4; 'layer' parameter of 'bias' differs on ranks 1 and 3"));
        CHECK(has(text, "; and 2 more; expected equal bits"));
        trainer.layer.initialize([](auto, auto, std::size_t) { return 1.0; });
    });
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        sk::Sharded<Net, sk::FullShard> layer{rank, "layer"};
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::verify_replicas(model, optimizer);
    });
}

TEST_CASE("an element's digest is a one-to-one function of its bits, and tensors' digests tell places apart") {
    using sk::detail::element_digest;
    for (unsigned bit = 0; bit < 64; ++bit) {
        CHECK(element_digest(0, 7, 0) != element_digest(0, 7, std::uint64_t{1} << bit));
    }
    // Every step of it can be undone: a multiplication by an odd number, and x ^ x >> n.
    std::vector<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 65536; ++i) { seen.push_back(element_digest(3, 5, i)); }
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
    // Two elements change places; a tensor's first row and its second one do.
    CHECK(element_digest(0, 0, 1) + element_digest(0, 1, 2) != element_digest(0, 0, 2) + element_digest(0, 1, 1));
    CHECK(element_digest(0, 0, 1) != element_digest(1, 0, 1));
    CHECK(element_digest(0, (std::uint64_t{1} << 32U) + 1, 9) != element_digest(0, 1, 9));
}

/// The digest of a whole tensor of these 16-bit words, from parts along a dimension that lanes go through.
std::uint64_t digest_of_parts(std::span<const std::uint16_t> words, const sk::TensorShape& shape,
                              std::size_t dimension, std::size_t parts, std::uint64_t lanes) {
    std::uint64_t total = 0;
    for (std::size_t index = 0; index < parts; ++index) {
        const sk::TensorPart part(shape, dimension, parts, index);
        std::vector<std::uint16_t> own(part.numel());
        for (std::size_t i = 0; i < own.size(); ++i) { own[i] = words[part.whole_index(i)]; }
        // Cut anywhere, as shards are.
        for (const sk::IndexRange cut : {sk::IndexRange{0, 3}, sk::IndexRange{3, own.size()}}) {
            std::vector<std::uint64_t> sums(lanes);
            const sk::detail::DigestElements<std::uint16_t> work{
                own.data() + cut.begin, cut.size(), lanes, part, cut.begin, 1, 77, sums.data()};
            for (std::uint64_t lane = 0; lane < lanes; ++lane) { work(lane); }
            std::uint64_t sum = 0;
            sk::detail::FoldDigests{sums, &sum}();
            total += sum;
        }
    }
    return total;
}

TEST_CASE("lanes of a kernel, shards and parts over tp add up to the digest of the whole tensor") {
    sk::TensorShape shape;
    shape.rank = 3;
    shape.extents = {4, 6, 5};
    std::vector<std::uint16_t> words(shape.numel());
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = static_cast<std::uint16_t>(i * 40503U);
        expected += sk::detail::element_digest(77, i, words[i]);
    }
    for (const std::uint64_t lanes : {1U, 3U, 200U}) {
        CHECK(digest_of_parts(words, shape, 0, 1, lanes) == expected);
        CHECK(digest_of_parts(words, shape, 0, 2, lanes) == expected);
        CHECK(digest_of_parts(words, shape, 1, 3, lanes) == expected);
        CHECK(digest_of_parts(words, shape, 2, 5, lanes) == expected);
    }
    using Work = sk::detail::DigestElements<std::uint16_t>;
    CHECK(Work::lanes_of(0) == 1);
    CHECK(Work::lanes_of(std::uint64_t{1} << 40U) == Work::most_lanes);
}

}  // namespace verify_replicas_test
