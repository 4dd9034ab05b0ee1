// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../../examples/common/parse.hpp"
#include "../../examples/common/read_flag.hpp"
#include "../common/sweep.hpp"

namespace benchmarks::kernels {

namespace {

const SweepFlags sizes{"number of bytes that a rank reads and writes in a call", std::uint64_t{256} << 10U,
                       std::uint64_t{256} << 20U, 32};

void add_flags(program::Flags& flags) {
    flags.add("--device", "NAME", "host, or gpu: the kernels for devices, on the first GPU that is visible [host]");
    flags.add("--kernel", "LIST", "all, or a list with commas of " + program::listed(kernel_names) + " [all]");
    flags.add("-d,--datatype", "LIST", "all, or a list with commas of float and bfloat16 [all]");
    flags.add("--ranks", "N",
              "threads that run the kernel at the same time, each on data of its own; with --device host [1]");
    flags.add("--tensors", "N", "tensors of mixed sizes that are packed [300]");
    flags.add("--runs", "LIST", "runs that the spans of adamw, sgd and norm are cut into, a row for each number [1]");
    flags.add("--groups", "LIST", "groups of parameters of a step, a row for each number [1]");
    flags.add("--graph", "off|on", "calls are captured in a CUDA graph, which is launched; with --device gpu [off]");
    sizes.add(flags);
}

/// Numbers with commas.
void read_counts(const program::Flags& flags, const std::string& name, std::vector<std::size_t>& counts) {
    flags.use(name, [&](const std::string& flag, const std::string& given) {
        counts.clear();
        for (const std::string& part : program::split_list(given)) {
            counts.push_back(program::parse_count(flag, part, 1, 1'000'000));
        }
    });
}

/// Everything but names and sizes.
void read_device(const program::Flags& flags, Options& o) {
    program::read_name(flags, "--device", device_names, o.device);
    program::read_count(flags, "--ranks", o.ranks, 1, 4096);
    program::read_count(flags, "--tensors", o.tensors, 1, 1'000'000);
    read_counts(flags, "--runs", o.runs);
    read_counts(flags, "--groups", o.groups);
    program::read_name(flags, "--graph", program::switch_names, o.graph);
    if (o.graph && o.device != Device::gpu) {
        throw program::bad_flag("--graph", "on", "off with --device host, which has no graphs");
    }
    if (o.device == Device::gpu && o.ranks > 1) {
        throw program::bad_flag("--ranks", std::to_string(o.ranks), "1 with --device gpu, which measures one GPU");
    }
    if (o.device == Device::gpu) { o.for_gpu(); }
}

}  // namespace

std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help) {
    program::Flags flags("Times the element-wise kernels of shardkit, and a copy of the same bytes beside each.",
                         "kernels");
    add_flags(flags);
    if (!flags.parse(count, arguments, help)) { return std::nullopt; }

    Options o;
    read_device(flags, o);
    read_names(flags, "--kernel", kernel_names, o.kernels);
    read_names(flags, "--datatype", type_names, o.types);
    sizes.read(flags, o);
    return o;
}

}  // namespace benchmarks::kernels
