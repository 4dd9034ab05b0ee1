// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <shardkit/backend/self/engine.hpp>
#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/comm/barrier.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/engine.hpp>
#include <shardkit/rank/rank.hpp>

#include "least_engine.hpp"

namespace engine_test {

namespace {

using namespace shardkit;
using least::Indexer;
using least::Talker;
using least::Trainer;

// The least of each, and no more.
static_assert(Engine<Talker> && !engine::GroupVerbs<Talker> && !engine::StepKernels<Talker> &&
              !engine::IndexKernels<Talker>);
static_assert(Engine<Trainer> && engine::GroupVerbs<Trainer> && engine::StepKernels<Trainer> &&
              !engine::IndexKernels<Trainer>);
static_assert(Engine<Indexer> && engine::IndexKernels<Indexer> && !engine::StepKernels<Indexer>);
static_assert(!Engine<int> && !engine::GroupVerbs<int> && !engine::StepKernels<int> && !engine::IndexKernels<int>);

// An engine of fp32 alone says so; the library's own have every combination.
static_assert(!engine::StepKernels<Trainer, Precision<bf16>> && !engine::GroupVerbs<Trainer, Precision<bf16>>);
template <class E>
constexpr bool has_all = Engine<E>&& engine::IndexKernels<E>&& engine::StepKernels<E, Precision<double>>&&
    engine::StepKernels<E, Precision<bf16>>&& engine::StepKernels<E, Precision<fp16, fp16, fp16, double>>&&
        engine::GroupVerbs<E, Precision<bf16>>&& engine::GroupVerbs<E, Precision<float, bf16>>;
static_assert(has_all<self::Engine> && has_all<threads::Engine>);

// One violator for each requirement: the member is hidden by one of another kind.
struct NumberAsName : Talker {
    static constexpr int name = 3;
};
struct SpeaksToNobody : Talker {
    using Communicator = int;
};
struct StreamOfNothing : Talker {
    using Stream = int;
};
struct StreamOfAnother : Talker {
    using Stream = InlineStream;
};
template <class B>
struct With : Talker {
    template <class T>
    using Buffer = typename B::template Of<T>;
};
struct Whole {
    template <class T>
    struct Of : least::Buffer<T> {
        using least::Buffer<T>::Buffer;
    };
};
struct Constant {
    template <class T>
    struct Of : least::Buffer<T> {
        using least::Buffer<T>::Buffer;
        const T* data() const { return nullptr; }
    };
};
struct WithoutSpan {
    template <class T>
    struct Of : least::Buffer<T> {
        using least::Buffer<T>::Buffer;
        T* span() const { return nullptr; }
    };
};
struct WithoutSize {
    template <class T>
    struct Of : least::Buffer<T> {
        using least::Buffer<T>::Buffer;
        std::string size() const { return "0"; }
    };
};
struct Immovable {
    template <class T>
    struct Of : least::Buffer<T> {
        using least::Buffer<T>::Buffer;
        Of() = default;
        Of(Of&&) = delete;
    };
};
struct NeedsSize {
    template <class T>
    struct Of : least::Buffer<T> {
        explicit Of(std::size_t size) : least::Buffer<T>(size) {}
    };
};
struct MadeByNobody {
    template <class T>
    struct Of : least::Buffer<T> {
        Of() = default;
    };
};
static_assert(!Engine<NumberAsName> && !Engine<SpeaksToNobody> && !Engine<StreamOfNothing> &&
              !Engine<StreamOfAnother>);
static_assert(Engine<With<Whole>>);
static_assert(!Engine<With<Constant>> && !Engine<With<WithoutSpan>> && !Engine<With<WithoutSize>>);
static_assert(!Engine<With<Immovable>> && !Engine<With<NeedsSize>> && !Engine<With<MadeByNobody>>);
/// A communicator that makes the buffers is another way.
struct Placing : With<MadeByNobody> {
    struct Communicator : least::SilentCommunicator<Communicator> {
        template <class T>
        Buffer<T> buffer(std::size_t) const {
            return {};
        }
    };
};
static_assert(Engine<Placing>);

template <class C>
struct Speaking : Trainer {
    using Communicator = C;
};
struct GathersNothing : least::VerbsOfGroups<GathersNothing> {
    void all_gather(std::span<float>, least::Stream, SourceLocation) const {}
};
struct ScattersNothing : least::VerbsOfGroups<ScattersNothing> {
    void reduce_scatter(std::span<float>, least::Stream, SourceLocation) const {}
};
struct ReducesNothing : least::VerbsOfGroups<ReducesNothing> {
    void all_reduce(std::span<float>, least::Stream, SourceLocation) const {}
};
struct ReducesFloats : least::VerbsOfGroups<ReducesFloats> {
    void all_reduce(ReduceOp, std::span<const float>, std::span<float>, least::Stream, SourceLocation) const {}
};
static_assert(engine::GroupVerbs<Speaking<least::Communicator>>);
static_assert(!engine::GroupVerbs<Speaking<GathersNothing>> && !engine::GroupVerbs<Speaking<ScattersNothing>>);
static_assert(!engine::GroupVerbs<Speaking<ReducesNothing>> && !engine::GroupVerbs<Speaking<ReducesFloats>>);

template <class K>
struct Running : Trainer {
    using Kernels = K;
};
template <class K>
constexpr bool steps = engine::StepKernels<Running<K>>;
struct NoFill : least::KernelsOfSteps {
    static void fill(least::Stream, std::span<float>) {}
};
struct NoConvert : least::KernelsOfSteps {
    static void convert(std::span<const float>, std::span<float>) {}
};
struct NoAccumulate : least::KernelsOfSteps {
    static void accumulate(least::Stream, std::span<float>) {}
};
struct NoCopyIn : least::KernelsOfSteps {
    static void copy_in(least::Stream, std::span<const float>, std::span<float>) {}  // and no tables
};
struct NoCopyOut : least::KernelsOfSteps {
    static void copy_out(least::Stream, std::span<const float>, std::span<float>) {}
};
struct NoRun : least::KernelsOfSteps {
    static void run_once(least::Stream, void (*)()) {}
};
struct NoNormPartial : least::KernelsOfSteps {
    static void norm_partial(least::Stream, std::span<const float>, const double*, double*) {}
};
struct NoUpdate : least::KernelsOfSteps {
    template <class Update>
    static void update(least::Stream, const Update&, const rules::UpdateSpans<float, float, float, 1>&) {}
};
struct OneState : least::KernelsOfSteps {  // and neither none nor two
    template <class Update>
    static void update(least::Stream, std::span<const rules::UpdateRange>, const Update*, const std::uint32_t*,
                       const rules::UpdateSpans<float, float, float, 1>&) {}
};
static_assert(steps<least::KernelsOfSteps> && !steps<int> && !engine::StepKernels<Talker>);
static_assert(!steps<NoFill> && !steps<NoConvert> && !steps<NoAccumulate> && !steps<NoCopyIn> && !steps<NoCopyOut>);
static_assert(!steps<NoRun> && !steps<NoNormPartial> && !steps<NoUpdate> && !steps<OneState>);

template <class K>
constexpr bool indexes = engine::IndexKernels<Running<K>>;
struct NoForEachIndex {
    static void for_each_index(least::Stream, std::uint64_t, void (*)(std::uint64_t)) {}
};
template <auto Workers>
struct WithWorkers : least::KernelsByIndex {
    static constexpr auto row_workers = Workers;
};
static_assert(indexes<least::KernelsByIndex> && indexes<WithWorkers<32>> && !indexes<NoForEachIndex>);
static_assert(!indexes<WithWorkers<0>> && !indexes<WithWorkers<nullptr>>);

}  // namespace

TEST_CASE("Engine: one without kernels makes ranks that communicate") {
    Rank<Talker, DeviceMesh<1>> rank{{}, {}};
    CHECK(rank.world().size() == 1);
    CHECK(rank.sub_mesh<Axes<Tp>>().size() == 1);
    CHECK(rank.buffer<double>(4).size() == 0);
    CHECK_NOTHROW(barrier(rank.world(), rank.communication_stream()));
}

}  // namespace engine_test
