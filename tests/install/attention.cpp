// Causal attention on a CPU: the example of the README.
#include <saccade/saccade.hpp>

#include <cstdio>
#include <vector>

int main() try {
  const int heads = 8, seqlen = 256, head_dim = 64;
  std::vector<float> q(heads * seqlen * head_dim, 0.5F), k = q, v = q, o(q.size());

  saccade::Engine engine;
  const saccade::Problem problem(R"({"dtype":"f32","head_dim":64,"mask":"kv_idx <= q_idx"})");
  const saccade::Plan plan = engine.prepare("cpu", problem, saccade::dense_shape(1, heads, heads, seqlen, seqlen));
  const saccade::HostWorkspace workspace(plan);

  saccade_run_arguments run = saccade::run_arguments();
  run.q = q.data(), run.k = k.data(), run.v = v.data(), run.o = o.data(), run.workspace = workspace.data();
  run.q_stride = run.k_stride = run.v_stride = run.o_stride = saccade::contiguous(heads, seqlen, head_dim);
  plan.run(run);
  std::printf("o[0] = %.3f\n%s\n", o[0], plan.report().c_str());
} catch (const saccade::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
