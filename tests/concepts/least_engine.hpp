// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <shardkit/rank/engine.hpp>

/// The least engines: for ranks that communicate, for groups of fp32 parameters, and for layers that are split.
/// Nothing is a template that need not be one, and no verb moves anything.
namespace least {

namespace sk = shardkit;
using Where = sk::SourceLocation;

struct Stream {
    struct Event {};
    Event record() const { return {}; }
    void wait(const Event&) const {}
    void synchronize() const {}
};

template <class Self>
struct SilentCommunicator {
    using Stream = least::Stream;
    std::size_t rank() const { return 0; }
    std::size_t size() const { return 1; }
    const char* axes() const { return "world"; }
    Self split(std::size_t, std::size_t, std::string_view, Where) const { return {}; }
    Self named(std::string_view) const { return {}; }
    void barrier(Stream, Where) const {}
};

template <class T>
struct Buffer {
    explicit Buffer(std::size_t = 0) {}
    T* data() const { return nullptr; }
    std::size_t size() const { return 0; }
    std::span<T> span() const { return {}; }
};

/// Communicates, and has no kernels.
struct Talker {
    static constexpr const char* name = "talker";
    struct Communicator : SilentCommunicator<Communicator> {};
    using Stream = least::Stream;
    template <class T>
    using Buffer = least::Buffer<T>;
};

template <class Self>
struct VerbsOfGroups : SilentCommunicator<Self> {
    void all_gather(std::span<const float>, std::span<float>, Stream, Where) const {}
    void reduce_scatter(sk::ReduceOp, std::span<const float>, std::span<float>, Stream, Where) const {}
    void all_reduce(sk::ReduceOp, std::span<const float>, std::span<float>, Stream, Where) const {}
    void all_reduce(sk::ReduceOp, std::span<const double>, std::span<double>, Stream, Where) const {}
};
struct Communicator : VerbsOfGroups<Communicator> {};

struct KernelsOfSteps {
    static void fill(Stream, std::span<float>, float) {}
    static void convert(Stream, std::span<const float>, std::span<float>) {}
    static void accumulate(Stream, std::span<const float>, std::span<float>) {}
    template <class T>
    static void copy_in(Stream, std::span<const T>, std::span<T>) {}
    template <class T>
    static void copy_out(Stream, std::span<const T>, std::span<T>) {}
    template <class Work>
    static void run_once(Stream, const Work&) {}
    static void norm_partial(Stream, std::span<const sk::engine::NormPiece<float>>, sk::IndexRange, const double*,
                             double*) {}
    template <class Update, std::size_t StateCount>
    static void update(Stream, std::span<const sk::rules::UpdateRange>, const Update*, const std::uint32_t*,
                       const sk::rules::UpdateSpans<float, float, float, StateCount>&) {}
};
/// Trains.
struct Trainer : Talker {
    using Communicator = least::Communicator;
    using Kernels = KernelsOfSteps;
};

struct KernelsByIndex {
    template <class Work>
    static void for_each_index(Stream, std::uint64_t, const Work&) {}
};
/// Runs kernels by index, and has none of a step.
struct Indexer : Talker {
    using Kernels = KernelsByIndex;
};

}  // namespace least
