// SPDX-License-Identifier: Apache-2.0
// What is reported of GPUs, of a machine and figures that are made up.
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "../../benchmarks/collectives/report.hpp"
#include "../../benchmarks/kernels/options.hpp"
#include "../../benchmarks/kernels/report.hpp"

namespace gpu_report_test {

namespace {

using namespace benchmarks;
using nlohmann::json;

Machine made_up() {
    Machine machine;
    machine.gpu = Gpu{"Model G", std::uint64_t{80} << 30U, "1.2.3", "13.0", "2.28.9"};
    return machine;
}
const std::string named = "# GPU:     Model G, 80.00 GiB, driver 1.2.3, CUDA 13.0, NCCL 2.28.9\n";

Figure figure() {
    Figure made;
    made.time = {2e-6, 1e-6, 3e-6};
    made.calls = 20;
    made.wrong = 0;
    made.copy = CopyFigure{512, "cudaMemcpyAsync", {1e-6, 1e-6, 1e-6}};
    return made;
}

kernels::Row packed(std::size_t tensors) {
    kernels::Row row;
    row.kernel = tensors > 0 ? kernels::KernelKind::pack : kernels::KernelKind::norm;
    row.bytes = 1024;
    row.elements = 128;
    row.tensors = tensors;
    row.launches = 1;
    row.figure = figure();
    return row;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("collectives: the head and the JSON name GPU, driver, CUDA and NCCL, and how the copy was made") {
    Options options;
    options.engine = EngineKind::nccl;
    CHECK(contains(table_head(options, made_up(), ""), named));
    CHECK(!contains(table_head(options, Machine(), ""), "# GPU"));
    Row row;
    row.bytes = 1024;
    row.out_of_place = figure();
    const json report = json::parse(json_report(options, made_up(), "", {row}));
    CHECK(report["engine"] == "nccl");
    CHECK(report["machine"]["gpu"] == json{{"name", "Model G"},
                                           {"memory_bytes", std::uint64_t{80} << 30U},
                                           {"driver", "1.2.3"},
                                           {"cuda", "13.0"},
                                           {"nccl", "2.28.9"}});
    CHECK(report["rows"][0]["out_of_place"]["copy"]["stores"] == "cudaMemcpyAsync");
    CHECK(!json::parse(json_report(options, Machine(), "", {}))["machine"].contains("gpu"));
}

TEST_CASE("kernels: launches and parts stand in columns of their own, and in the JSON") {
    kernels::Options options;
    options.device = kernels::Device::gpu;
    const std::string head = kernels::table_head(options, made_up());
    CHECK(contains(head, named));
    const std::string columns = head.substr(head.find("#     kernel"));
    CHECK(contains(columns, " of copy   parts launches graph\n"));
    const std::string line = kernels::table_row(packed(300), options);
    CHECK(line.size() == columns.find('\n') + 1);
    CHECK(contains(line, "     50.0     300        1   off\n"));
    CHECK(contains(kernels::table_row(packed(0), options), "       -        1   off\n"));
    const json report = json::parse(kernels::json_report(options, made_up(), {packed(300), packed(0)}));
    CHECK(report["engine"] == "gpu");
    CHECK(report["machine"]["gpu"]["name"] == "Model G");
    CHECK(report["rows"][0]["launches"] == 1);
    CHECK(report["rows"][0]["tensors"] == 300);
    CHECK(report["rows"][1]["tensors"] == nullptr);
    CHECK(report["rows"][1]["runs"] == nullptr);
    CHECK(report["rows"][1]["groups"] == nullptr);
    CHECK(report["rows"][1]["graph"] == false);
}

TEST_CASE("without -n a round on a GPU has at least 20 calls, and for small sizes 200") {
    const auto parsed = [](std::vector<const char*> words) {
        std::string help;
        words.insert(words.begin(), "kernels");
        return kernels::parse_command_line(static_cast<int>(words.size()), words.data(), help).value();
    };
    const kernels::Options gpu = parsed({"--device", "gpu"});
    CHECK(gpu.calls_for(256) == 200);
    CHECK(gpu.calls_for(std::uint64_t{256} << 20U) == 31);
    CHECK(gpu.calls_for(std::uint64_t{4} << 30U) == 20);
    CHECK(gpu.kernels.size() == kernels::kernel_names.size());
    CHECK(parsed({"--device", "gpu", "-n", "3"}).calls_for(256) == 3);
    const kernels::Options host = parsed({});
    CHECK(host.calls_for(std::uint64_t{256} << 20U) == 1);
    CHECK(host.kernels.size() == kernels::kernel_names.size());
}

}  // namespace gpu_report_test
