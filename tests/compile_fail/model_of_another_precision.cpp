// SPDX-License-Identifier: Apache-2.0
// expected-error: Model<Engine, Precision>: a group has another precision; name it, or Precisions<...> of all
#include "model.hpp"

using Doubled = sk::Sharded<Linear, sk::FullShard, Engine, sk::Precision<float, float, double>>;

#ifdef REJECT
using Both = sk::Model<Engine>;
#else
using Both = sk::Model<Engine, sk::Precisions<sk::DefaultPrecision<float>, sk::Precision<float, float, double>>>;
#endif
void collect(Layer& a, Doubled& b) { Both model{a, b}; }
