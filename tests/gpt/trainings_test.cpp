// SPDX-License-Identifier: Apache-2.0
#include "trainings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/core/bf16.hpp>
#include <shardkit/local_shards.hpp>
#include <shardkit/step/model.hpp>

namespace train_gpt::test {

namespace {

/// Writes a run of elements to their places in the whole tensor.
template <class T>
void write_run(const sk::ShardInfo& shard, std::vector<double>& tensor) {
    const T* from = static_cast<const T*>(shard.data);
    for (const auto& box : shard.boxes) {
        std::array<std::size_t, sk::TensorShape::max_rank> at{};
        for (std::size_t i = 0; i < box.range.size(); ++i) {
            std::size_t place = 0;
            for (std::size_t d = 0; d < box.rank; ++d) {
                place = place * shard.shape.extents[d] + box.offsets[d] + at[d];
            }
            tensor[place] = static_cast<double>(static_cast<sk::Arithmetic<T>>(*from++));
            for (std::size_t d = box.rank; d-- > 0 && ++at[d] == box.extents[d];) { at[d] = 0; }
        }
    }
}

/// Whole parameters, put together of what ranks hold.
struct Parameters {
    std::mutex mutex;
    std::vector<Parameter> all;

    std::vector<double>& values_of(const std::string& path, std::string_view name, const sk::TensorShape& shape) {
        const auto is_it = [&](const Parameter& each) { return each.path == path && each.name == name; };
        const auto found = std::find_if(all.begin(), all.end(), is_it);
        if (found != all.end()) { return found->values; }
        return all.emplace_back(Parameter{path, std::string(name), std::vector<double>(shape.numel(), NAN)}).values;
    }
    void add(const sk::GroupRef& group) {
        const std::lock_guard lock(mutex);
        for (const auto& parameter : group.parameters()) { values_of(group.path(), parameter.name, parameter.shape); }
        for (const sk::ShardInfo& shard : group.shards()) {
            if (shard.kind != "parameter" || !shard.current) { continue; }
            std::vector<double>& values = values_of(shard.path, shard.parameter, shard.shape);
            if (shard.type == sk::element_type_of<double>) {
                write_run<double>(shard, values);
            } else if (shard.type == sk::element_type_of<float>) {
                write_run<float>(shard, values);
            } else {
                REQUIRE(shard.type == sk::element_type_of<sk::bf16>);
                write_run<sk::bf16>(shard, values);
            }
        }
    }
};

}  // namespace

Trained trained(Job job) {
    Parameters parameters;
    job.group_trained = [&](const sk::GroupRef& group) { parameters.add(group); };
    return {train(job), std::move(parameters.all)};
}

}  // namespace train_gpt::test

using namespace train_gpt;
using namespace train_gpt::test;

namespace trainings_test {

TEST_SUITE("gpt trainings") {
    TEST_CASE("a vocabulary that is padded, of which a rank has nothing, trains as on one rank") {
        Options options = base();
        options.model = {8, 2, 16, 4, HeadKind::tied};
        options.batch = 12;
        options.model.vocabulary = 130;
        for (const HeadKind head : {HeadKind::tied, HeadKind::untied}) {
            options.model.head = head;
            options.mesh = {1, 1, 1};
            const Trained one = trained(options);
            for (const Parameter& parameter : one.parameters) {
                if (parameter.name != "wte" && parameter.path != "logits") { continue; }
                REQUIRE(parameter.values.size() == 256 * options.model.width);
                const auto padding = parameter.values.begin() + 130 * 16;
                CHECK(std::all_of(padding, parameter.values.end(), [](double value) { return value == 0; }));
                CHECK(std::any_of(padding - 16, padding, [](double value) { return value != 0; }));
            }
            options.mesh = {1, 4, 1};
            check_close(options, one, trained(options), {1e-11, 1e-9, 1e-9});
        }
    }
}

}  // namespace trainings_test
