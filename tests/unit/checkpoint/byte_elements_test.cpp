// SPDX-License-Identifier: Apache-2.0
// Elements of one byte: opaque ones, which a frozen group gathers and stores, and codes with a scale of their type.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "temporary_folder.hpp"
#include "unit/sharded/chosen.hpp"
#include "unit/thrown_message.hpp"
#include "written_tensors.hpp"

namespace sk = shardkit;

namespace byte_elements_test {

/// Eighths, from -16 to 15.875.
template <int Denominator>
struct Fixed {
    std::int8_t code = 0;

    Fixed() = default;
    explicit Fixed(float value) noexcept
        : code(static_cast<std::int8_t>(std::fmin(std::fmax(std::nearbyint(value * Denominator), -128.0F), 127.0F))) {
    }
    explicit operator float() const noexcept { return static_cast<float>(code) / Denominator; }
};

}  // namespace byte_elements_test

template <int Denominator>
struct shardkit::element_traits<byte_elements_test::Fixed<Denominator>> {
    static constexpr ElementType type = ElementType::uint8;
    using Arithmetic = float;
    static constexpr double scale = 1.0 / Denominator;
};

namespace byte_elements_test {

namespace {

/// The codes and the scales of a quantised matrix, of sizes that divide nothing.
struct Codes : sk::Param<"codes", std::byte, 31, 9>, sk::Frozen {};
struct Scales : sk::Param<"scales", std::byte, 7>, sk::Frozen {};
using Base = sk::Params<Codes, Scales>;
struct Adapter : sk::Param<"adapter", float, 9, 2> {};

std::vector<std::byte> bytes_of(std::size_t count, unsigned seed) {
    std::vector<std::byte> all(count);
    for (std::size_t i = 0; i < count; ++i) { all[i] = static_cast<std::byte>((i * 7 + seed) % 256); }
    return all;
}

template <class Rank>
struct Trained {
    using Frozen = sk::Sharded<Base, sk::DynamicPolicy>;
    using Trainable = sk::Sharded<Adapter, sk::DynamicPolicy>;
    using Model = decltype(sk::Model{std::declval<Frozen&>(), std::declval<Trainable&>()});
    Frozen base;
    Trainable adapter;
    Model model;
    decltype(sk::AdamW{std::declval<Model&>()}) optimizer;

    Trained(Rank& rank, const sk::DynamicPolicy& policy)
        : base(rank, "base", {}, {policy}),
          adapter(rank, "adapter", {}, {policy}),
          model(base, adapter),
          optimizer(model, {.learning_rate = 0.1}) {
        adapter.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });
    }
    void step() {
        sk::Accumulation accumulation{model};
        auto window = base.unshard();
        auto gradients = accumulation.gradients(adapter);
        for (std::size_t i = 0; i < 18; ++i) {
            gradients[Adapter{}].data()[i] += static_cast<float>(std::to_integer<int>(window[Codes{}][i])) - 40;
        }
        base.reshard(std::move(window));
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation), {.max_norm = 1});
    }
    bool holds(const std::vector<std::byte>& codes, const std::vector<std::byte>& scales) {
        const auto window = base.unshard();
        std::vector<std::byte> read(codes.size());
        base.read_full(Codes{}, read);
        return read == codes && std::equal(codes.begin(), codes.end(), window[Codes{}].begin()) &&
               std::equal(scales.begin(), scales.end(), window[Scales{}].begin());
    }
};

const std::vector<sk::DynamicPolicy> policies{toy::chosen(sk::NoShard{}), toy::chosen(sk::ShardOptimizer{}),
                                              toy::chosen(sk::ShardGradOp{}), toy::chosen(sk::FullShard{}),
                                              toy::chosen(sk::HybridShard<2>{})};

/// A byte that is trained, which no group may have.
struct Loose : sk::Param<"loose", std::byte, 4> {};

template <class Element>
using Row = sk::Sharded<sk::TensorList<Element>, sk::FullShard>;

}  // namespace

TEST_CASE("opaque bytes are gathered, kept by training, saved, and loaded on another mesh, under every policy") {
    const std::vector<std::byte> codes = bytes_of(31 * 9, 3);
    const std::vector<std::byte> scales = bytes_of(7, 250);
    for (std::size_t p = 0; p < policies.size(); ++p) {
        CAPTURE(p);
        const temporary_folder::Folder folder;
        std::vector<float> trained(18);
        sk::threads::run(sk::DeviceMesh<4>{}, [&](auto& rank) {
            Trained before(rank, policies[p]);
            before.base.load(Codes{}, codes);
            before.base.load("scales", scales);
            CHECK(before.holds(codes, scales));
            before.step();
            before.step();
            CHECK(before.holds(codes, scales));
            before.adapter.read_full_on(0, Adapter{},
                                        rank.rank() == 0 ? std::span<float>(trained) : std::span<float>());
            sk::checkpoint::save(rank, folder.path(), 2, sk::checkpoint::State{before.model, before.optimizer});
        });
        CHECK(trained[0] != 0);
        std::vector<float> loaded(18);
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            Trained after(rank, policies[(p + 1) % policies.size()]);
            const auto saved = sk::checkpoint::latest(rank, folder.path());
            sk::checkpoint::load(rank, saved->path, sk::checkpoint::State{after.model, after.optimizer});
            CHECK(after.holds(codes, scales));
            after.adapter.read_full_on(0, Adapter{},
                                       rank.rank() == 0 ? std::span<float>(loaded) : std::span<float>());
            if (rank.rank() == 0) {
                const sk::safetensors::File file(saved->path + "/model.safetensors");
                CHECK(file.at("base.codes").type == sk::safetensors::DType::u8);
            }
        });
        CHECK(loaded == trained);
    }
}

TEST_CASE("a plan counts one byte for each opaque element, and neither masters, gradients nor states") {
    constexpr auto mesh = sk::DeviceMesh<4>{}.grid();
    struct Wide : sk::Param<"wide", std::byte, 4096, 16>, sk::Frozen {};
    constexpr std::array full{sk::describe_group<Wide, sk::FullShard>("base", {}, mesh)};
    constexpr sk::Plan planned = sk::plan(full, mesh, {.norms_per_step = 0});
    static_assert(planned.memory.parameters == sk::ByteCount(4096 * 16 / 4));
    static_assert(planned.memory.gather_buffers == sk::ByteCount(4096 * 16));
    static_assert(planned.memory.total() == planned.memory.parameters + planned.memory.gather_buffers);
    static_assert(planned.traffic.total(sk::Verb::all_gather).calls == 2);
    static_assert(planned.zeroed == sk::ByteCount(0));
    constexpr std::array whole{sk::describe_group<Wide, sk::NoShard>("base", {}, mesh)};
    static_assert(sk::plan(whole, mesh, {.norms_per_step = 0}).memory.total() == sk::ByteCount(4096 * 16));
}

TEST_CASE("opaque bytes that are trained, and tensors of other elements, are refused") {
    const temporary_folder::Folder folder;
    const std::string path = folder.path() + "/model.safetensors";
    written_tensors::write_file(path, {{"row.w", {4}, {1, 2, 3, 4}}});
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        const char* const text =
            "'group' parameter 'loose': elements of std::byte that are trained, expected Frozen: opaque bytes have "
            "no "
            "gradient";
        CHECK_INVALID_ARGUMENT((sk::Sharded<Loose, sk::NoShard>{rank, "group"}), text);
        CHECK_INVALID_ARGUMENT((sk::describe_group<Loose, sk::NoShard>("group", {}, rank.grid())), text);
        Row<std::byte> row{rank, "row", {{"w", {4}, {.frozen = true}}}};
        sk::Model model{row};
        CHECK(has(thrown_message<sk::FileError>([&] { sk::checkpoint::load_model(rank, path, model); }),
                  "tensor 'row.w' has elements of type F32, expected U8: codes of 8 bits, or opaque bytes"));
    });
}

TEST_CASE("a checkpoint has the scale of codes beside them, and codes of another scale are refused") {
    const temporary_folder::Folder folder;
    std::string saved;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        const auto row = [&](auto element, bool frozen) {
            using E = decltype(element);
            return Row<E>{rank, "row", {{"w", {5, 3}, {.frozen = frozen}}, {"b", {3}, {.frozen = frozen}}}};
        };
        {
            auto eighths = row(Fixed<8>{}, false);
            eighths.initialize([](auto, auto, std::uint64_t i) { return 0.3 * static_cast<double>(i); });
            sk::Model model{eighths};
            sk::AdamW optimizer{model, {.learning_rate = 0.5, .weight_decay = 0}};
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(eighths);
            for (auto& element : gradients.view("w")) { element = Fixed<8>(1); }
            accumulation.add(std::move(gradients));
            optimizer.step(std::move(accumulation));
            sk::checkpoint::save(rank, folder.path(), 1, sk::checkpoint::State{model, optimizer});
            saved = sk::checkpoint::latest(rank, folder.path())->path;
        }
        {
            auto eighths = row(Fixed<8>{}, false);
            sk::Model model{eighths};
            sk::AdamW optimizer{model, {.learning_rate = 0.5, .weight_decay = 0}};
            sk::checkpoint::load(rank, saved, sk::checkpoint::State{model, optimizer});
            std::vector<float> values(15);
            eighths.read_full("w", values);
            // A step of 0.5 down, of which the codes have the nearest eighths.
            for (std::size_t i = 0; i < values.size(); ++i) {
                CHECK(std::fabs(values[i] - (0.3F * static_cast<float>(i) - 0.5F)) <= 1.0F / 16 + 1e-5F);
            }
            // As numbers, not as the bytes that they are.
            std::vector<Fixed<16>> sixteenths(15);
            eighths.read_full("w", sixteenths);
            CHECK(std::equal(values.begin(), values.end(), sixteenths.begin(),
                             [](float a, Fixed<16> b) { return a == static_cast<float>(b); }));
        }
        const auto refused = [&](auto element) {
            auto other = row(element, true);
            sk::Model model{other};
            return thrown_message<sk::FileError>([&] {
                sk::checkpoint::load(rank, saved, sk::checkpoint::State{model}, {.states = false, .subset = true});
            });
        };
        CHECK(has(refused(Fixed<16>{}),
                  "tensor 'row.w' has codes of 8 bits with a scale of 0.125, expected a scale of "
                  "0.0625, as of the group's element type"));
        CHECK(
            has(refused(std::byte{}), "tensor 'row.w' has codes of 8 bits with a scale of 0.125, expected no scale"));
        const sk::safetensors::File file(saved + "/model.safetensors");
        bool found = false;
        for (const auto& [key, value] : file.metadata()) {
            found = found || (key == "scale:row.w" && value == "0.125");
        }
        CHECK(found);
        CHECK(file.read<std::byte>("row.w").size() == 15);
        const sk::safetensors::File masters(saved + "/state/master.safetensors");
        CHECK(has(thrown_message<std::invalid_argument>([&] { static_cast<void>(masters.read<std::byte>("row.w")); }),
                  "elements of type F32, expected U8"));
    });
}

TEST_CASE("codes of two scales do not share a tensor") {
    const temporary_folder::Folder folder;
    sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Row<Fixed<8>> upper{rank, "upper", {{"w", {2, 3}, {.frozen = true}}}};
        Row<Fixed<16>> lower{rank, "lower", {{"w", {2, 3}, {.frozen = true}}}};
        sk::Model model{upper, lower};
        const auto names = [](std::string_view path, const sk::ParameterRecord& parameter) {
            return sk::checkpoint::stored_within("both", 4, path == "upper" ? 0 : 2, parameter.shape);
        };
        CHECK(has(
            thrown_message<std::invalid_argument>([&] {
                sk::checkpoint::save_model(rank, folder.path() + "/model.safetensors", model, {.names = names});
            }),
            "share 'both', as uint8 times 0.125 [4, 3] and uint8 times 0.0625 [4, 3]: expected one type and shape"));
    });
}

}  // namespace byte_elements_test
