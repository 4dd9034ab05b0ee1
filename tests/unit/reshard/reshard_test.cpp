// SPDX-License-Identifier: Apache-2.0
// A state that is brought to another mesh without a file has the bits of one that is saved and loaded.
#include <shardkit/reshard.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/threads/run.hpp>

#include "files_in_cache.hpp"
#include "reshard_training.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"
#include "unit/thrown_message.hpp"

namespace reshard_test {

namespace sk = shardkit;
using reshard_training::Side;
using reshard_training::WithAdamW;
using reshard_training::WithMuonOf;
using temporary_folder::contents;
using temporary_folder::Folder;

/// Brings states From to states To, from every `sources`-th side to every `destinations`-th one, in a world of eight
/// ranks.
template <class From, class To>
void check_pairs(std::size_t files_saved, std::size_t sources, std::size_t destinations) {
    const Folder folder;
    files_in_cache::InCache files;
    reshard_training::save_first<From>(folder.file("first"), files);
    reshard_training::Loaded loaded;
    // What a load makes of it on one rank.
    const reshard_training::Reshards what{
        folder.file("first"),
        reshard_training::load_and_save<To>(folder.file("first"), folder.file("expected"), files),
        folder.file("saved"), files, &loaded};
    CHECK(what.expected.size() == files_saved);
    const std::vector<Side> all = reshard_training::sides(8);
    for (const Side& each : all) { loaded[each.kind()]; }
    std::size_t number = 0;
    for (std::size_t i = 0; i < all.size(); i += sources) {
        Side from = all[i];
        from.first = i % 2 == 0 ? 0 : 8 - from.mesh.size();
        std::vector<Side> to;
        for (std::size_t j = i % destinations; j < all.size(); j += destinations, ++number) {
            to.push_back(all[j]);
            const std::size_t gap = 8 - to.back().mesh.size();
            to.back().first = number % 3 == 0 ? gap : std::min(gap, number % 4);
        }
        // Messages of a few elements, and some in one piece.
        const sk::ReshardOptions options{.staging_bytes = i % 3 == 0 ? std::size_t{4096} : std::size_t{1} << 22U};
        std::string error;
        try {
            sk::threads::run(sk::DeviceMesh<8>{}, [&](auto& rank) {
                reshard_training::reshard_to_each<From, To>(rank, from, to, what, options);
            });
        } catch (const std::exception& exception) { error = exception.what(); }
        REQUIRE(error == "");
    }
    if (sources == 1 && destinations == 1) { CHECK(number == all.size() * all.size()); }
}

TEST_CASE("every mesh of up to 8 ranks and every policy gives and takes the bits of a checkpoint") {
    const auto check = [](auto from, auto to, std::size_t files, std::size_t every) {
        const bool small = test_size::reduced();
        const std::size_t least = test_size::complete() ? 1 : 53;
        check_pairs<decltype(from), decltype(to)>(files,
                                                  test_size::complete() ? 1
                                                  : small               ? 4 * every
                                                                        : every,
                                                  least);
    };
    // Named, so that all of them can be run beside each other.
    SUBCASE("AdamW fp32") { check(WithAdamW<float>{}, WithAdamW<float>{}, 5, 5); }
    SUBCASE("AdamW bf16") { check(WithAdamW<sk::bf16>{}, WithAdamW<sk::bf16>{}, 6, 19); }
    SUBCASE("AdamW fp32 to bf16") { check(WithAdamW<float>{}, WithAdamW<sk::bf16>{}, 6, 29); }
    SUBCASE("AdamW bf16 to fp32") { check(WithAdamW<sk::bf16>{}, WithAdamW<float>{}, 5, 31); }
    SUBCASE("Muon fp32") { check(WithMuonOf<float>{}, WithMuonOf<float>{}, 7, 17); }
    SUBCASE("Muon bf16") { check(WithMuonOf<sk::bf16>{}, WithMuonOf<sk::bf16>{}, 8, 37); }
}

template <class T>
struct Weight : sk::Param<"weight", T, 40, 64>, sk::tp::Split<1> {};
template <class T>
struct Bias : sk::Param<"bias", T, 33> {};
template <class T>
using Net = sk::Params<Weight<T>, Bias<T>>;
/// fp16 alone, and bf16 with masters.
using Half = sk::Precision<sk::fp16, sk::fp16, float, sk::fp16>;
template <class T>
using Layer = sk::Sharded<Net<T>, sk::DynamicPolicy,
                          std::conditional_t<std::is_same_v<T, sk::fp16>, Half, sk::DefaultPrecision<T>>>;
using reshard_training::Mesh;

double value_of(std::string_view name, std::uint64_t i) {
    return 0.25 * static_cast<double>(i % 97) + static_cast<double>(name.size());
}
template <class L>
void fill(L& layer, double last = 1) {
    layer.initialize([last](std::string_view, std::string_view name, std::uint64_t i) {
        return name == "bias" && i == 32 ? last : value_of(name, i);
    });
}
/// The bytes of all that this rank holds of a layer.
template <class L>
std::vector<std::byte> bytes_of(const L& layer) {
    std::vector<std::byte> all;
    for (const sk::ShardInfo& shard : layer.shards()) {
        const auto* const first = static_cast<const std::byte*>(shard.data);
        all.insert(all.end(), first, first + shard.range.size() * sk::size_of(shard.type));
    }
    return all;
}
using reshard_training::case_of;
const Side four{Mesh(4, 1, 1), case_of(sk::FullShard{}), 0};
const Side two{Mesh(1, 2, 1), case_of(sk::NoShard{}), 4};
constexpr std::size_t all_ranks = 7;  // the last one is on no side

/// On a rank of each side, a layer.
template <class Rank, class To = float>
struct Both {
    explicit Both(Rank& rank, const Side& source = four, const Side& destination = two)
        : from_rank(reshard_training::part_of(rank, source)), to_rank(reshard_training::part_of(rank, destination)) {
        const auto make = [](auto& layer, auto& on, const Side& side) {
            using L = typename std::remove_reference_t<decltype(layer)>::value_type;
            if (on != nullptr) {
                layer.emplace(*on, "layer", sk::Shapes<typename L::Group>{}, typename L::Options{side.on.policy});
            }
        };
        make(from, from_rank, source);
        make(to, to_rank, destination);
    }
    sk::ReshardSide source() { return from ? sk::ReshardSide(sk::Model{*from}) : nullptr; }
    sk::ReshardSide destination() { return to ? sk::ReshardSide(sk::Model{*to}) : nullptr; }

    decltype(reshard_training::part_of(std::declval<Rank&>(), four)) from_rank, to_rank;
    std::optional<Layer<float>> from;
    std::optional<Layer<To>> to;
};
/// Whether this rank's window has what `fill` gives.
template <class L>
bool is_filled(L& layer) {
    bool right = true;
    const auto window = layer.unshard();
    for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
        const auto& parameter = layer.parameters()[p];
        const auto view = window.view(p);
        parameter.part.for_each_run(0, view.size(), [&](std::size_t i, std::size_t at, std::size_t run) {
            for (std::size_t k = 0; k < run; ++k) {
                const bool last = parameter.name == "bias" && at + k == 32;
                const auto value = static_cast<float>(last ? 1 : value_of(parameter.name, at + k));
                right = right && static_cast<float>(view.data()[i + k]) == value;
            }
        });
    }
    return right;
}

TEST_CASE("a plan says who sends what, and is used again until what it was made for changes") {
    std::array<std::string, all_ranks> told;
    std::array<std::string, all_ranks> refused;
    std::size_t filled = 0;
    sk::threads::run(sk::DeviceMesh<all_ranks>{}, [&](auto& rank) {
        Both both(rank);
        const sk::ReshardPlan plan = sk::plan_reshard(rank, both.source(), both.destination());
        told[rank.rank()] = plan.describe();
        for (unsigned step = 0; step < 2; ++step) {
            if (both.from) { fill(*both.from); }
            const sk::ReshardReport report = sk::reshard(rank, plan, both.source(), both.destination());
            if (report.tensors != (both.to ? 2 : 0)) { throw std::logic_error("another number of tensors"); }
            if (both.destination().version() != (both.to ? step + 1U : 0U) || both.source().version() != 0) {
                throw std::logic_error("another version");
            }
        }
        {
            Both others(rank);  // which lie as these do
            if (others.from) { fill(*others.from); }
            sk::reshard(rank, plan, others.source(), others.destination());
            if (others.to && is_filled(*others.to) && rank.rank() == 4) { ++filled; }
        }
        Both moved(rank, four, Side{Mesh(1, 1, 2), two.on, 4});
        refused[rank.rank()] =
            thrown_message<sk::UsageError>([&] { sk::reshard(rank, plan, moved.source(), moved.destination()); });
    });
    CHECK(filled == 1);
    for (const std::string& each : told) { CHECK(each == told[0]); }
    CHECK(told[0] ==
          "reshard of 2 tensors on 7 ranks: 10.26 KiB received, 4 rounds\n"
          "  rank 0 to rank 4: 1.38 KiB, messages: 1\n"  // half a row more of the first half
          "  rank 0 to rank 5: 1.25 KiB, messages: 1\n"
          "  rank 1 to rank 4: 1.25 KiB, messages: 1\n"
          "  rank 1 to rank 5: 1.38 KiB, messages: 1\n"
          "  rank 2 to rank 4: 1.38 KiB, messages: 1\n"
          "  rank 2 to rank 5: 1.25 KiB, messages: 1\n"
          "  rank 3 to rank 4: 1.13 KiB, messages: 1\n"
          "  rank 3 to rank 5: 1.25 KiB, messages: 1\n");
    for (const std::string& each : refused) { CHECK(each == refused[0]); }
    CHECK(refused[0].find("rank 4: reshard: the plan was made for another destination: 'layer.weight' has another "
                          "shape, type or place; expected a new plan_reshard") == 0);
}

TEST_CASE("one rank keeps what it has, and receives nothing") {
    std::string told;
    bool filled = false;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Both both(rank, Side{Mesh(1, 1, 1), four.on, 0}, Side{Mesh(1, 1, 1), two.on, 0});
        fill(*both.from);
        told = sk::plan_reshard(rank, both.source(), both.destination()).describe();
        sk::reshard(rank, both.source(), both.destination());
        filled = is_filled(*both.to);
    });
    CHECK(told == "reshard of 2 tensors on 1 ranks: 0 B received, 0 rounds\n  rank 0 keeps 10.13 KiB\n");
    CHECK(filled);
}

TEST_CASE("what cannot be moved is refused on every rank, and changes nothing") {
    struct Case {
        const char* name;
        const char* text;
    };
    const std::array<Case, 7> cases{{
        {"no source", "reshard: no rank has a source: expected one on some ranks"},
        {"no destination", "reshard: no rank has a destination: expected one on some ranks"},
        {"part of the source",
         "reshard: no rank of the source has all elements of 'layer.weight': expected the "
         "source of every rank that has one"},
        {"staging",
         "reshard: rank 0 means 'staging_bytes 16777216', rank 1 'staging_bytes 8192': expected the same "
         "on every rank, in the same order"},
        {"names", "and the files beside it lack 'other', and have 'layer.bias' besides"},
        {"loads",
         "reshard: rank 4 means 'source/model.safetensors, 2 tensors, first 'layer.weight', a subset', rank 5 "
         "'source/model.safetensors, 1 tensors, first 'layer.weight', a subset': expected the same"},
        {"itself", "reshard: 'layer' is in the source and in the destination, expected other groups"},
    }};
    for (const Case& each : cases) {
        CAPTURE(each.name);
        const std::string_view name = each.name;
        std::array<std::string, all_ranks> told;
        std::size_t whole = 0;
        sk::threads::run(sk::DeviceMesh<all_ranks>{}, [&](auto& rank) {
            Both both(rank);
            if (both.from) { fill(*both.from, 2); }
            if (both.to) { fill(*both.to); }
            auto from = both.source();
            auto to = both.destination();
            sk::ReshardOptions options;
            if (name == "no source" || (name == "part of the source" && rank.rank() == 2)) { from = nullptr; }
            if (name == "no destination") { to = nullptr; }
            if (name == "itself") { to = both.source(); }
            if (name == "staging" && rank.rank() == 1) { options.staging_bytes = 8192; }
            options.subset = name == "loads";
            if (name == "names" || (name == "loads" && rank.rank() == 5)) {
                options.to_names = [](std::string_view path, const sk::ParameterRecord& parameter) {
                    return parameter.name == "bias" ? sk::checkpoint::stored("other", parameter.shape)
                                                    : sk::checkpoint::stored_by_path(path, parameter);
                };
            }
            try {
                sk::reshard(rank, from, to, options);
            } catch (const std::exception& error) { told[rank.rank()] = error.what(); }
            if (both.to && is_filled(*both.to) && rank.rank() == 5) { ++whole; }
        });
        for (const std::string& text : told) { CHECK(text == told[0]); }
        CHECK(told[0].find(each.text) != std::string::npos);
        CHECK(told[0].find("reshard_test.cpp:") != std::string::npos);
        CHECK(whole == 1);
    }
}

TEST_CASE(
    "an element that the destination cannot hold ends it on every rank: the destination is refused, the source "
    "is as it was") {
    std::array<std::string, all_ranks> told;
    std::array<std::string, all_ranks> window;
    std::size_t untouched = 0;
    std::size_t healed = 0;
    std::mutex mutex;
    sk::threads::run(sk::DeviceMesh<all_ranks>{}, [&](auto& rank) {
        Both<std::remove_reference_t<decltype(rank)>, sk::fp16> both(rank, four, {Mesh(2, 1, 1), four.on, 4});
        if (both.from) { fill(*both.from, 1e6); }
        const auto before = both.from ? bytes_of(*both.from) : std::vector<std::byte>();
        told[rank.rank()] =
            thrown_message<sk::FileError>([&] { sk::reshard(rank, both.source(), both.destination()); });
        if (both.to) {
            window[rank.rank()] = thrown_message<sk::UsageError>([&] { const auto opened = both.to->unshard(); });
        }
        const bool same = both.from && bytes_of(*both.from) == before;
        if (both.from) { fill(*both.from); }
        sk::reshard(rank, both.source(), both.destination());
        const bool filled = both.to && is_filled(*both.to);
        const std::lock_guard lock(mutex);
        untouched += same ? 1 : 0;
        healed += filled ? 1 : 0;
    });
    for (const std::string& text : told) { CHECK(text == told[0]); }
    CHECK(
        told[0].find("'source/model.safetensors': rank 5: tensor 'layer.bias': a finite element is beyond the range "
                     "of fp16") == 0);
    for (const std::size_t rank : {4U, 5U}) {
        CHECK(window[rank].find("'layer': unshard, but the reshard at ") == 0);
        CHECK(window[rank].find("ended with an error before 'weight' had its parameter and others theirs; expected a "
                                "load") != std::string::npos);
    }
    CHECK(untouched == 4);
    CHECK(healed == 2);
}

/// What becomes of a rank that meets the first message that it sends.
using Mishap = std::function<void()>;
class FailsToSend final : public sk::host::DecoratedVerbs {
  public:
    FailsToSend(std::shared_ptr<const sk::host::Verbs> verbs, std::size_t culprit, const Mishap& mishap)
        : DecoratedVerbs(std::move(verbs)), culprit_(culprit), mishap_(mishap) {}

  private:
    void around(const sk::Call& call, sk::host::Memory, const sk::Stream&, const Inner& inner) const override {
        if (rank() == culprit_ && call.signature.verb == sk::Verb::send) { mishap_(); }
        inner();
    }
    std::shared_ptr<const sk::host::Verbs> decorate(std::shared_ptr<const sk::host::Verbs> verbs) const override {
        return std::make_shared<const FailsToSend>(std::move(verbs), culprit_, mishap_);
    }

    std::size_t culprit_;
    const Mishap& mishap_;
};

/// A reshard in which a rank of the source meets a mishap between two messages.
struct Ended {
    std::array<std::string, all_ranks> told;    // what ended it
    std::array<std::string, all_ranks> window;  // what the destination says to who uses it then
    std::array<bool, all_ranks> same{};         // whether the source is as it was
    std::string launched;                       // what the launcher throws
};
template <class Error>
Ended end_reshard(std::size_t culprit, std::chrono::milliseconds deadline, const Mishap& mishap,
                  const std::function<void()>& has_ended) {
    Ended ended;
    ended.launched = thrown_message<Error>([&] {
        sk::threads::run(sk::DeviceMesh<all_ranks>{}, [&](auto& plain) {
            const sk::Communicator world(std::make_shared<const FailsToSend>(plain.world().verbs(), culprit, mishap));
            sk::MeshRank<sk::DeviceMesh<all_ranks>> rank{{}, world};
            Both both(rank);
            if (both.from) { fill(*both.from); }
            const auto before = both.from ? bytes_of(*both.from) : std::vector<std::byte>();
            try {
                sk::reshard(rank, both.source(), both.destination(), {.deadline = deadline});
            } catch (const std::exception& error) {
                const std::size_t own = rank.rank();
                ended.told[own] = error.what();
                ended.same[own] = both.from && bytes_of(*both.from) == before;
                if (both.to) {
                    ended.window[own] =
                        thrown_message<sk::UsageError>([&] { const auto opened = both.to->unshard(); });
                }
                has_ended();
                throw;
            }
        });
    });
    for (std::size_t rank = 0; rank < all_ranks; ++rank) {
        CAPTURE(rank);
        CHECK(ended.same[rank] == (rank < 4));
    }
    for (const std::size_t rank : {4U, 5U}) {
        CHECK(ended.window[rank].find("'layer': unshard, but the reshard at ") == 0);
    }
    return ended;
}

TEST_CASE(
    "a rank that fails between two messages ends it on all others: the destination is refused, the source is as "
    "it was") {
    const std::size_t culprit = 2;
    const Ended ended = end_reshard<std::runtime_error>(
        culprit, std::chrono::seconds(20), [] { throw std::runtime_error("planted"); }, [] {});
    CHECK(ended.launched == "planted");
    for (std::size_t rank = 0; rank < all_ranks; ++rank) {
        CAPTURE(rank);
        CHECK(ended.told[rank].find(rank == culprit ? "planted" : "rank 2 failed: planted") != std::string::npos);
    }
}
TEST_CASE(
    "a rank that is late for longer than the deadline ends it on all, itself too: the destination is refused, the "
    "source is as it was") {
    const std::size_t culprit = 2;
    std::atomic<std::size_t> have_ended{0};
    const Ended ended = end_reshard<sk::CommError>(
        culprit, std::chrono::seconds(1),
        [&] {
            while (have_ended < all_ranks - 1) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
        },
        [&] { ++have_ended; });
    for (std::size_t rank = 0; rank < all_ranks; ++rank) {
        CAPTURE(rank);
        CHECK(ended.told[rank].find("1000 ms") != std::string::npos);
    }
}

/// Ranks of which four each are on one host.
class OnHosts final : public sk::host::DecoratedVerbs {
  public:
    using DecoratedVerbs::DecoratedVerbs;
    std::size_t host_of(std::size_t rank) const noexcept override { return rank / 4; }

  private:
    void around(const sk::Call&, sk::host::Memory, const sk::Stream&, const Inner& inner) const override { inner(); }
    std::shared_ptr<const sk::host::Verbs> decorate(std::shared_ptr<const sk::host::Verbs> verbs) const override {
        return std::make_shared<const OnHosts>(std::move(verbs));
    }
};

/// From four ranks of a host to the four of another one that all keep everything, of which one of the first four
/// needs everything too.
template <class To>
void check_hosts(std::uint64_t kept_bytes) {
    constexpr std::uint64_t numel = 40 * 64 + 33;
    std::size_t filled = 0;
    std::string told;
    std::mutex mutex;
    sk::threads::run(sk::DeviceMesh<8>{}, [&](auto& plain) {
        const sk::Communicator world(std::make_shared<const OnHosts>(plain.world().verbs()));
        sk::MeshRank<sk::DeviceMesh<8>> rank{{}, world};
        Both<std::remove_reference_t<decltype(rank)>, To> both(rank, four,
                                                               {Mesh(5, 1, 1), case_of(sk::NoShard{}), 3});
        if (both.from) { fill(*both.from); }
        const sk::ReshardPlan plan = sk::plan_reshard(rank, both.source(), both.destination());
        const auto before = rank.traffic().total(sk::Verb::receive).moved;
        sk::reshard(rank, plan, both.source(), both.destination());
        const auto received = rank.traffic().total(sk::Verb::receive).moved.value - before.value;
        const bool full = both.to && is_filled(*both.to);
        const std::lock_guard lock(mutex);
        filled += full ? 1 : 0;
        CHECK(received == plan.received(rank.rank()));
        if (rank.rank() != 0) { return; }
        told = plan.describe();
        std::uint64_t between = 0;
        for (std::size_t from = 0; from < 4; ++from) {
            for (std::size_t to = 4; to < 8; ++to) {
                between += plan.bytes(from, to);
                CHECK(plan.bytes(to, from) == 0);
            }
        }
        CHECK(between == numel * sizeof(float));
        std::uint64_t passed = 0;
        for (std::size_t from = 4; from < 8; ++from) {
            for (std::size_t to = 4; to < 8; ++to) { passed += plan.bytes(from, to); }
        }
        CHECK(passed == 3 * numel * kept_bytes);
    });
    CAPTURE(told);
    CHECK(filled == 5);
}
TEST_CASE("what several ranks of a host need comes to the host once, and is passed on there") {
    check_hosts<float>(4);
    check_hosts<sk::fp16>(2);
    check_hosts<sk::bf16>(6);  // parameters and masters, which come to the host as one
}

/// A state with an optimizer's states in that format, a loss scale and bytes of the user.
template <class T, sk::StateFormat Format>
struct Trainer {
    using Precision = std::conditional_t<std::is_same_v<T, float>, sk::DefaultPrecision<float>,
                                         sk::Precision<sk::bf16, sk::bf16, float, float>>;
    using TrainedLayer = sk::Sharded<Net<T>, sk::DynamicPolicy, Precision>;

    Trainer(sk::Rank& on, const sk::DynamicPolicy& policy, sk::MasterWeights master)
        : layer(on, "layer", sk::Shapes<Net<T>>{},
                typename TrainedLayer::Options{.policy = policy, .master = master}),
          model{layer},
          optimizer(model, sk::states_in<Format>, {.learning_rate = 0.01}),
          scale(on, {.initial = 8}),
          state(model, optimizer, scale) {
        state.blob("sampler", blob);
    }
    /// The last three rows of the weight are zero, and stay so.
    void begin() {
        layer.initialize([](std::string_view, std::string_view name, std::uint64_t i) {
            return name == "weight" && i >= 37 * 64U ? 0.0 : value_of(name, i);
        });
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            auto view = gradients.view(p);
            const auto& parameter = layer.parameters()[p];
            parameter.part.for_each_run(0, view.size(), [&](std::size_t i, std::size_t at, std::size_t run) {
                for (std::size_t k = 0; k < run; ++k) {
                    const bool zero = parameter.name == "weight" && at + k >= 37 * 64U;
                    view.data()[i + k] = T(zero ? 0.F : 0.37F + static_cast<float>((at + k) % 53));
                }
            });
        }
        accumulation.add(std::move(gradients));
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        blob = {1, 2, 3};
    }

    TrainedLayer layer;
    sk::Model model;
    sk::AdamW optimizer;
    sk::LossScale scale;
    std::vector<std::uint8_t> blob{9};
    sk::checkpoint::State state;
};

/// That a reshard leaves what a save and a load leave, on overlapping meshes.
template <class From, class To>
void check_forms(sk::MasterWeights from_master, sk::MasterWeights to_master,
                 const sk::checkpoint::TensorNames& names = sk::checkpoint::stored_by_path) {
    const Folder folder;
    const auto step = [&](const char* name) { return folder.file(name) + std::string("/step-00000001"); };
    sk::threads::run(sk::DeviceMesh<6>{}, [&](auto& rank) {
        const Side four_ranks{Mesh(2, 2, 1), case_of(sk::FullShard{}), 0};
        const Side three_ranks{Mesh(3, 1, 1), case_of(sk::ShardOptimizer{}), 2};
        const auto from_rank = reshard_training::part_of(rank, four_ranks);
        const auto to_rank = reshard_training::part_of(rank, three_ranks);
        std::optional<From> from;
        if (from_rank != nullptr) {
            from.emplace(*from_rank, four_ranks.on.policy, from_master);
            from->begin();
            sk::checkpoint::save(*from_rank, folder.file("first"), 1, from->state, {.names = names});
        }
        sk::barrier(rank.world());
        std::optional<To> to;
        if (to_rank != nullptr) {
            To loaded(*to_rank, three_ranks.on.policy, to_master);
            sk::checkpoint::load(*to_rank, step("first"), loaded.state, {.names = names});
            sk::checkpoint::save(*to_rank, folder.file("loaded"), 1, loaded.state, {.names = names});
            to.emplace(*to_rank, three_ranks.on.policy, to_master);
        }
        sk::reshard(rank, from ? &from->state : nullptr, to ? &to->state : nullptr, {.names = names});
        if (to) { sk::checkpoint::save(*to_rank, folder.file("resharded"), 1, to->state, {.names = names}); }
    });
    const auto expected = contents(step("loaded"));
    CHECK(expected.size() >= 5);
    CHECK(contents(step("resharded")) == expected);
}

TEST_CASE(
    "states of every format, split masters, and tensors under other names and orders have a checkpoint's bits") {
    using enum sk::MasterWeights;
    using Full = Trainer<float, sk::StateFormat::full>;
    using Blocks = Trainer<float, sk::StateFormat::block8>;
    using Mixed = Trainer<sk::bf16, sk::StateFormat::full>;
    check_forms<Blocks, Blocks>(kept, kept);
    check_forms<Blocks, Full>(kept, kept);
    check_forms<Full, Blocks>(kept, kept);
    check_forms<Mixed, Mixed>(split, kept);
    check_forms<Mixed, Mixed>(kept, split);
    check_forms<Mixed, Full>(split, kept);
    check_forms<Full, Mixed>(kept, split);
    check_forms<Full, Full>(kept, kept, [](std::string_view /*path*/, const sk::ParameterRecord& parameter) {
        using Rows = std::vector<std::pair<std::string, std::size_t>>;
        return parameter.name == "weight" ? sk::checkpoint::stored_transposed("w", parameter.shape)
                                          : sk::checkpoint::stored_rows(Rows{{"b", 20}, {"c", 13}}, parameter.shape);
    });
    check_forms<Mixed, Full>(kept, kept, [](std::string_view path, const sk::ParameterRecord& parameter) {
        return parameter.name == "weight" ? sk::checkpoint::stored_without_padding("w", parameter.shape, 3)
                                          : sk::checkpoint::stored_by_path(path, parameter);
    });
}

}  // namespace reshard_test
