// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <shardkit/comm/all_gather.hpp>
#include <shardkit/comm/all_reduce.hpp>
#include <shardkit/comm/communicator.hpp>
#include <shardkit/comm/reduce_scatter.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/rank/default_engine.hpp>
#include <shardkit/rank/index_kernels.hpp>

// What an engine must provide: Engine for communication, GroupVerbs and StepKernels for groups of parameters and
// their optimizers, IndexKernels for layers that tensor or context parallelism splits.
// backend/threads/communicator.hpp is an example.

namespace shardkit::engine {

/// The engine allocates a rank's memory itself. A separate concept, as nvcc 13.0 accepts the same requires-expression
/// in a member even if it is not satisfied.
template <class C, class T>
concept MakesBuffers = requires(const C& comm, std::size_t n) {
    comm.template buffer<T>(n);
};
/// It does, and an engine's buffers of type B are made of that memory.
template <class C, class T, class B>
concept MakesBuffersOf = MakesBuffers<C, T> && requires(const C& comm, std::size_t n) {
    B(comm.template buffer<T>(n));
};

/// The engine places memory elsewhere that no verb works on and whose size may differ between ranks, and its buffers
/// of type B are made of that memory.
template <class C, class T, class B>
concept MakesLocalBuffersOf = requires(const C& comm, std::size_t n) {
    B(comm.template local_buffer<T>(n));
};

/// The engine's memory can be a device's, and two streams of its own copy between that and pinned memory of the host,
/// one each way, beside other work. What offloaded states need: see Offload.
///     host_buffer<T>(n)        n zeroed elements that the host and the device can access, as BufferOf
///     copy_stream(way)         the stream of copies that go that way
///     host_stream()            the stream of functions that a thread of the host calls
/// The engine names HostKernels too, unless its Kernels take a stream of the host as well: the `update` of its
/// Kernels on host memory, in the caller (see StepKernels).
template <class C>
concept Offloads = requires(const C& comm, std::size_t n) {
    comm.template host_buffer<std::uint8_t>(n);
    { comm.copy_stream(LinkWay::to_host) } -> std::same_as<typename C::Stream>;
    { comm.host_stream() } -> std::same_as<typename C::Stream>;
};

/// The engine can check whether it can work on given memory.
template <class C>
concept ChecksMemory = requires(const C& comm, const void* data, std::size_t n, std::string_view what,
                                SourceLocation where) {
    comm.require_memory(data, n, what, where);
    comm.require_host_memory(data, n, what, where);
};

/// A buffer owns `size` zeroed elements of an engine's memory. It is made from their number, unless MakesBuffers.
/// Moving it does not move its elements. A default one is empty.
template <class B, class T>
concept BufferOf = std::movable<B> && std::default_initializable<B> && requires(const B buffer) {
    { buffer.data() } -> std::same_as<T*>;
    { buffer.size() } -> std::convertible_to<std::size_t>;
    { buffer.span() } -> std::same_as<std::span<T>>;
};

}  // namespace shardkit::engine

namespace shardkit {

namespace detail {

/// The element types of a group of fp32, as in Precision.
struct Fp32 {
    using Gather = float;
    using Gradient = float;
    using Reduction = float;
    using Master = float;
};

template <class E>
concept IsDefined = requires {
    sizeof(E);
};
template <class E>
concept NamesItself = requires {
    { E::name } -> std::convertible_to<std::string_view>;
};
template <class E>
concept HasCommunicator = Communicator<typename E::Communicator>;
template <class E>
concept HasStream = Stream<typename E::Stream> && std::same_as<typename E::Stream, typename E::Communicator::Stream>;
template <class E, class T>
concept HasBufferOf = engine::BufferOf<typename E::template Buffer<T>, T> &&
    (engine::MakesBuffers<typename E::Communicator, T> ||
     std::constructible_from<typename E::template Buffer<T>, std::size_t>);
template <class E>
concept HasBuffers = HasBufferOf<E, double> && HasBufferOf<E, std::uint8_t>;

template <class E, class T>
concept Fills = requires(const typename E::Stream& stream, std::span<T> to, T value) {
    E::Kernels::fill(stream, to, value);
};
template <class E, class From, class To>
concept Converts = requires(const typename E::Stream& stream, std::span<const From> from, std::span<To> to) {
    E::Kernels::convert(stream, from, to);
};
template <class E, class T>
concept Accumulates = requires(const typename E::Stream& stream, std::span<const T> addend, std::span<T> total) {
    E::Kernels::accumulate(stream, addend, total);
};
/// Optional, for sums along the tree of slices.
template <class E, class T>
concept AccumulatesPairs = std::same_as<T, Arithmetic<T>> &&
    requires(const typename E::Stream& stream, std::span<const T> addend, std::span<T> total) {
    E::Kernels::accumulate_pair(stream, addend, addend, total);
};
template <class E, class T>
concept CopiesIn = requires(const typename E::Stream& stream, std::span<const T> from, std::span<T> to) {
    E::Kernels::copy_in(stream, from, to);
};
template <class E, class T>
concept CopiesOut = requires(const typename E::Stream& stream, std::span<const T> from, std::span<T> to) {
    E::Kernels::copy_out(stream, from, to);
};
template <class E>
concept RunsOnce = requires(const typename E::Stream& stream, const AnyWork& work) {
    E::Kernels::run_once(stream, work);
};
/// Optional, for engines with costly launches.
template <class E>
concept RunsFirst = requires(const typename E::Stream& stream, std::uint64_t n, const AnyWork& work) {
    E::Kernels::run_first(stream, work, n, work);
};
}  // namespace detail

// The arguments of the kernels of norms and updates. Their definitions are in optim/ and sharded/, which are above
// this room.
namespace engine {
template <FloatingElement T>
struct NormPiece;
}  // namespace engine
namespace rules {
struct UpdateRange;
template <FloatingElement MasterType, FloatingElement GatherType, FloatingElement GradientType,
          std::size_t StateCount, class Storage = detail::FullStates>
struct UpdateSpans;
}  // namespace rules

namespace detail {

template <class E, class T>
concept SumsNorms = requires(const typename E::Stream& stream, std::span<const engine::NormPiece<T>> pieces,
                             IndexRange positions, const double* scale, double* into) {
    E::Kernels::norm_partial(stream, pieces, positions, scale, into);
};

/// Any update, with any number of states, for the concepts.
struct AnyUpdate {
    template <class... ParameterStatesGradient>
    constexpr void operator()(ParameterStatesGradient&&... /*values*/) const {}
};
template <class E, class P, std::size_t StateCount>
concept UpdatesWith = requires(
    const typename E::Stream& stream, std::span<const rules::UpdateRange> ranges, const AnyUpdate* updates,
    const std::uint32_t* skip,
    const rules::UpdateSpans<typename P::Master, typename P::Gather, typename P::Reduction, StateCount>& spans) {
    E::Kernels::update(stream, ranges, updates, skip, spans);
};
template <class E, class P>
concept Updates = UpdatesWith<E, P, 0> && UpdatesWith<E, P, 1> && UpdatesWith<E, P, 2>;

}  // namespace detail

/// An engine has what communicating ranks need: a name for errors, a Communicator, the Stream that its verbs take,
/// and memory that they work on. A constant `traits` (comm/engine_traits.hpp) says what its collectives cost.
template <class E>
concept Engine =
    detail::NamesItself<E> && detail::HasCommunicator<E> && detail::HasStream<E> && detail::HasBuffers<E>;

}  // namespace shardkit

namespace shardkit::engine {

/// The engine has the collectives of a group of parameters with these element types; see the concepts of the verbs.
template <class E, class Precision = detail::Fp32>
concept GroupVerbs = AllGathers<typename E::Communicator, typename Precision::Gather> &&
    ReduceScatters<typename E::Communicator, typename Precision::Gradient, typename Precision::Reduction> &&
    AllReduces<typename E::Communicator, typename Precision::Gradient, typename Precision::Reduction> &&
    AllReduces<typename E::Communicator, typename Precision::Reduction, typename Precision::Reduction> &&
    AllReduces<typename E::Communicator, double, double>;

/// The engine has the kernels of a training step, for a group's element types. They are static members of E::Kernels,
/// all of which take the stream first.
///     fill(stream, to, value)               every element
///     convert(stream, from, to)             rounded to nearest, ties to even
///     accumulate(stream, addend, total)     total[i] += addend[i], in Arithmetic<Sum>
///     copy_in, copy_out(stream, from, to)   between the host's memory and the engine's, of any trivially copyable
///                                           type; they return when the host's side is done
///     run_once(stream, work)                work(), once: scalars that depend on scalars. It is copied
///     norm_partial(stream, pieces, positions, scale, into)
///                                           adds (*scale * g)^2 of the elements of all pieces, and the finite
///                                           check, to a travelling NormSum (sharded/norm_sum.hpp); `positions`: from
///                                           the first piece's begin to the last one's end
///     update(stream, ranges, updates, skip, spans)
///                                           a functor's update (optim/update.hpp) of each range's elements, with any
///                                           number of states; nothing where *skip is not 0
/// Optional, for sums of slices; otherwise two of accumulate, which read and write once more:
///     accumulate_pair(stream, addend, other, total)
///                                           total[i] += other[i] + addend[i], where Arithmetic<Sum> is Sum
/// Optional, for engines with costly launches; otherwise groups are begun in one run_once:
///     run_first(stream, first, n, work)     first(copy of first.reads()), then work(i) for every i below n, in one
///                                           launch; reads(): at most First::most_reads doubles
/// Order:   stream-ordered. Pointers are read when the kernel runs, not when it is launched.
template <class E, class Precision = detail::Fp32>
concept StepKernels = detail::HasKernels<E> && detail::Fills<E, typename Precision::Gather> &&
    detail::Fills<E, typename Precision::Gradient> &&
    detail::Converts<E, typename Precision::Gather, typename Precision::Master> &&
    detail::Accumulates<E, typename Precision::Reduction> && detail::CopiesIn<E, typename Precision::Gather> &&
    detail::CopiesIn<E, detail::AnyWork> && detail::CopiesOut<E, typename Precision::Gather> &&
    detail::CopiesOut<E, detail::AnyWork> && detail::RunsOnce<E> &&
    detail::SumsNorms<E, typename Precision::Reduction> && detail::Updates<E, Precision>;

}  // namespace shardkit::engine

namespace shardkit {

namespace detail {

/// Says which concept an engine does not satisfy that a rank needs; instantiated once for each engine. Code that
/// needs it checks `are_stated`, so that no second error follows. What is missing is in the compiler's notes.
template <class E>
struct EngineRules {
    static constexpr bool are_stated = true;
    static_assert(IsDefined<E>,
                  "Rank<Engine, Mesh>: Engine is only declared here; include an engine's run.hpp, or "
                  "backend/host/engine.hpp");
    static_assert(!IsDefined<E> || Engine<E>,
                  "Rank<Engine, Mesh>: Engine must satisfy shardkit::Engine; see rank/engine.hpp");
};

/// Says the same of a group of parameters and its optimizer.
template <class E, class P>
struct StepRules {
    static constexpr bool are_stated = true;
    static_assert(engine::GroupVerbs<E, P>,
                  "Sharded<..., Engine>: Engine must satisfy engine::GroupVerbs; see rank/engine.hpp");
    static_assert(engine::StepKernels<E, P>,
                  "Sharded<..., Engine>: Engine must satisfy engine::StepKernels; see rank/engine.hpp");
};

}  // namespace detail

}  // namespace shardkit
