// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/backend/host/tensor_table.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/index_range.hpp>

// Kernels that are given to a stream of a device. Files that nvcc does not compile give them too: what launches one
// is looked up when it is given. It is neither a function that is only declared here, since a work may be of a type
// that no other file can name, nor an inline table with the launch in some files and none in others, which the linker
// would take for one: it is a variable that is null everywhere, until a file that can launch the kernel says so
// before main.

namespace shardkit::engine {

template <FloatingElement T>
struct NormPiece;

/// Launches a kernel: run(stream, kernel). Only declared here; defined in files that can (backend/cub/launches.cuh).
template <class Kernel>
struct DeviceLaunchOf;

/// A function that launches a kernel.
template <class Kernel>
using KernelLaunch = void (*)(const Stream& stream, const Kernel& kernel);
/// What launches a kernel in this program; null: no file can.
template <class Kernel>
inline KernelLaunch<Kernel> device_launch = nullptr;

/// Says before main what launches a kernel, in files that can.
template <class Kernel>
struct DeviceLaunchIs {
    static inline const bool known = (device_launch<Kernel> = &DeviceLaunchOf<Kernel>::run, true);
};

}  // namespace shardkit::engine

namespace shardkit::detail {

template <class Kernel>
concept LaunchedHere = requires {
    sizeof(engine::DeviceLaunchOf<Kernel>);
};
/// `function`: the text of a function of the kernel, as compilers print it.
[[noreturn, gnu::cold]] inline void refuse_kernel(std::string_view function) {
    const std::string_view begin = "Kernel = ";
    const std::size_t at = function.find(begin);
    std::string_view name = at == std::string_view::npos ? function : function.substr(at + begin.size());
    name = name.substr(0, name.find_last_of(']'));
    name = name.substr(0, name.find(';'));
    throw_usage_error({}, "no file of this program launches the kernel ", name,
                      " on a device; expected one that nvcc compiles with backend/cub/launches.cuh and that runs it, "
                      "or lists it in a gpu::KernelLaunches, linked as an object file");
}

/// Gives a kernel to a stream of a device.
/// @throws UsageError when no file of the program can launch it
template <class Kernel>
void give_to_device(const Stream& stream, const Kernel& kernel) {
    if constexpr (LaunchedHere<Kernel>) {
        static_cast<void>(&engine::DeviceLaunchIs<Kernel>::known);
        // Named here too: nvcc makes no device code for what only a variable's initializer names.
        engine::DeviceLaunchOf<Kernel>::run(stream, kernel);
    } else {
        auto* const launch = engine::device_launch<Kernel>;
        if (launch == nullptr) { refuse_kernel(__PRETTY_FUNCTION__); }
        launch(stream, kernel);
    }
}

}  // namespace shardkit::detail

// The arguments of kernels; on<Kernels>(stream) gives the kernel to a stream by the functions of a Kernels. Their
// meaning is that of host::AnyKernels.
namespace shardkit::engine {

/// Sets every element to a value.
template <Element T>
struct Fill {
    std::span<T> to;
    T value;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        Kernels::fill(stream, to, value);
    }
};
/// Rounds elements to another type.
template <FloatingElement From, FloatingElement To>
struct Convert {
    std::span<const From> from;
    std::span<To> to;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        Kernels::convert(stream, from, to);
    }
};
/// Adds elements to sums.
template <FloatingElement Addend, FloatingElement Sum>
struct Accumulate {
    std::span<const Addend> addend;
    std::span<Sum> total;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        Kernels::accumulate(stream, addend, total);
    }
};
/// Copies tensors to their places in a flat buffer, or from there.
template <Element T, TensorCopy Way>
struct CopyTensors {
    std::span<const TensorPiece<T>> table;
    std::span<T> flat;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        Kernels::template copy_tensors<Way>(stream, table, flat);
    }
};
/// Runs a work once.
template <class Work>
struct RunOnce {
    Work work;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        Kernels::run_once(stream, work);
    }
};
/// Runs a work for every index below n.
template <class Work>
struct ForEachIndex {
    std::uint64_t n;
    Work work;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        Kernels::for_each_index(stream, n, work);
    }
};
/// Runs a work, and behind it another one for every index below n.
template <class First, class Work>
struct RunFirst {
    First first;
    std::uint64_t n;
    Work work;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        Kernels::run_first(stream, first, n, work);
    }
};
/// What one kernel of a reduction does on a device: `count` elements become as many others.
struct ReductionStep {
    enum class Way : std::uint8_t {
        convert,  ///< inputs into results
        widen,    ///< inputs into the arithmetic type: rows of `columns` elements, which lie `stride` apart
        narrow,   ///< that type into results
        combine,  ///< inputs of all ranks, whose rows lie `stride` apart, into results
    };
    Way way;
    const void* from;
    void* to;
    std::size_t count;
    std::size_t columns = count;
    std::size_t stride = count;
    ReduceOp op = ReduceOp::sum;
    std::size_t ranks = 1;
};
/// The kernel of it for two element types.
template <FloatingElement In, FloatingElement Out>
struct Reduce {
    ReductionStep step;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        using A = Arithmetic<Out>;
        const std::span inputs(static_cast<const In*>(step.from), step.count);
        const std::span results(static_cast<Out*>(step.to), step.count);
        // What an engine never gives has no kernel.
        if (step.way == ReductionStep::Way::combine) {
            Kernels::template combine<In, Out>(stream, step);
        } else if (step.way == ReductionStep::Way::convert) {
            if constexpr (!std::is_same_v<In, Out>) { Kernels::template convert<In, Out>(stream, inputs, results); }
        } else if (step.way == ReductionStep::Way::narrow) {
            if constexpr (!std::is_same_v<Out, A>) {
                Kernels::template convert<A, Out>(stream, {static_cast<const A*>(step.from), step.count}, results);
            }
        } else if constexpr (!std::is_same_v<In, Out> || !std::is_same_v<Out, A>) {
            const std::span wide(static_cast<A*>(step.to), step.count);
            if (step.columns == step.count || step.columns == step.stride) {  // packed already
                Kernels::template convert<In, A>(stream, inputs, wide);
            } else {
                Kernels::template convert_rows<In, A>(stream, inputs.data(), step.stride, wide, step.columns);
            }
        }
    }
};
/// Adds the squares of pieces to a travelling NormSum.
template <FloatingElement T>
struct NormPartial {
    std::span<const NormPiece<T>> pieces;
    IndexRange positions;
    const double* scale;
    double* into;

    template <class Kernels, class Stream>
    void on(const Stream& stream) const {
        Kernels::norm_partial(stream, pieces, positions, scale, into);
    }
};

}  // namespace shardkit::engine
